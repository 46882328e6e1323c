"""Scalar functions of filters and computed columns, one file per topic.

Every module here but ``registry`` and the private ones holds functions decorated with
``@function``: adding a function is adding one to the file of its topic. They know Arrow values
only, nothing of the tree that calls them; ``registry.find`` looks them up by name.
"""
