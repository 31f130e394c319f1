"""Seeds of episodes, as in services/base/random.h."""

_MASK = (1 << 64) - 1
_EPISODE_DOMAIN = 0x0065646F73697065  # "episode"


def _splitmix64(x):
    """One step of splitmix64 (Steele et al. 2014) from state `x`."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def episode_seed(hello, row, episode):
    """Of the `episode`th reset of `row`, which counts over all groups. 64 bits."""
    values = (_EPISODE_DOMAIN, hello.seed, hello.worker_id, row, hello.incarnation, episode)
    seed = len(values)
    for value in values:
        seed = _splitmix64(seed ^ value)
    return seed
