"""More words for `flotilla train`, read as its command line reads them (services/base/command_line.h)."""

# Short for --set of a field (launcher/train_flags.cc).
_SHORTCUTS = {"--seed": "seed", "--steps": "total_env_steps", "--env": "env.id", "--lr": "optimizer.learning_rate"}
_SHORTCUTS |= {"--total-timesteps": "total_env_steps", "--env-id": "env.id", "--learning-rate": "optimizer.learning_rate"}
_TOPOLOGY = {"--nproc-per-node", "--nproc", "--nnodes", "--node-rank", "--standalone"}
_NO = {"false", "f", "no", "n", "0"}


class Flags:
    """["--token-file", "t", "--set=ppo.epochs=8"], with hyphens or underscores. Whether there are such flags, the program
    says."""

    def __init__(self, words):
        self.words = [str(word) for word in words]
        self._given = []  # (name, value after "=" or None, next word)
        for word, following in zip(self.words, [*self.words[1:], ""]):
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                self._given.append((name.replace("_", "-"), value if equals else None, following))

    def text(self, name):
        """What comes with it, where it was given last; "" without it."""
        return next((self._value(each) for each in reversed(self._given) if each[0] == name), "")

    def switch(self, name):
        """Whether it is on."""
        values = [value for given, value, _ in self._given if given == name]
        return bool(values) and (values[-1] or "").lower() not in _NO

    @property
    def name_topology(self):
        """Whether they say how many learners there are, or on which nodes."""
        return any(name in _TOPOLOGY for name, _, _ in self._given)

    @property
    def assignments(self):
        """["ppo.epochs=8", ...], in order."""
        found = []
        for each in self._given:
            if each[0] == "--set":
                found.append(self._value(each))
            elif each[0] in _SHORTCUTS:
                found.append(f"{_SHORTCUTS[each[0]]}={self._value(each)}")
        return found

    @staticmethod
    def _value(given):
        _, value, following = given
        return following if value is None else value
