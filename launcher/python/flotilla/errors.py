class Error(ValueError):
    """What is wrong with a run, a checkpoint or an observation, in one line that says what would be right."""
