"""Changes of a cluster's objects, as their readers learn of them."""

from bireme.kube.changes import Change, Changes

GANG, OTHER = ("default", "gang"), ("default", "other")


def test_each_reader_clears_its_own_set() -> None:
    changes = Changes(lambda: None)
    first, second = changes.follow(Change.OBJECT), changes.follow(Change.OBJECT)
    changes.requeue(GANG)
    first.clear()
    changes.requeue(OTHER)
    assert (first, second) == ({OTHER}, {GANG, OTHER})


def test_a_change_of_members_is_a_change_of_the_object_but_not_the_other_way_round() -> None:
    changes = Changes(lambda: None)
    members, objects = changes.follow(Change.MEMBERS), changes.follow(Change.OBJECT)
    changes.note_members(GANG)
    changes.requeue(OTHER)
    assert (members, objects) == ({GANG}, {GANG, OTHER})


def test_an_assumed_plan_concerns_its_followers_alone_and_wakes_nobody() -> None:
    woken: list[None] = []
    changes = Changes(lambda: woken.append(None))
    members, assumed = changes.follow(Change.MEMBERS), changes.follow(Change.ASSUMED_PLAN)
    changes.note_assumed_plan(GANG)
    assert (members, assumed, woken, changes.revision) == (set(), {GANG}, [], 0)
    changes.note_members(GANG)
    changes.note_tenancy()
    assert (len(woken), changes.revision, changes.tenancy_revision) == (2, 1, 1)
