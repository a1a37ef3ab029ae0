"""From Volcano's manifests to Bireme's: what can be said in both is, the rest is named.

A Job becomes a TrainingJob (with a PersistentVolumeClaim or a ConfigMap where it needs one), a
PodGroup and a Queue their namesakes. Nothing is dropped in silence: every field that has another
meaning here, or none, leaves a :class:`~bireme.migration.notes.Note` with what to do about it.
"""
