"""Random scripts of what users do, played on a real and on an embedded cluster at the same time.

Both must give the same answers and come to the same states. ``scripts`` draws, ``world`` plays on
one cluster, ``lockstep`` plays on both, ``comparison`` says what differs.
"""
