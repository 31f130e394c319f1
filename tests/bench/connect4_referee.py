"""Games of a trained connect4_ppo policy against a search of two plies, played here by the rules and from the weights.

Of Flotilla it uses the checkpoint's weights.safetensors alone, so that what the environment, the evaluation and the
policy say is checked by something else:

    .deps/testvenv/bin/python tests/bench/connect4_referee.py RUN --games 400
"""

import argparse
import itertools
import pathlib

import numpy as np
from safetensors.numpy import load_file

ROWS, COLUMNS = 6, 7
EMPTY = -1
LINES = [
    [(row + i * down, column + i * right) for i in range(4)]
    for (down, right), row, column in itertools.product([(0, 1), (1, 0), (1, 1), (1, -1)], range(ROWS), range(COLUMNS))
    if row + 3 * down < ROWS and 0 <= column + 3 * right < COLUMNS
]


def has_four(board, player):
    return any(all(board[cell] == player for cell in line) for line in LINES)


def moves(board):
    return [column for column in range(COLUMNS) if board[0, column] == EMPTY]


def dropped(board, player, column):
    board = board.copy()
    board[max(row for row in range(ROWS) if board[row, column] == EMPTY), column] = player
    return board


def wins(board, player):
    return [column for column in moves(board) if has_four(dropped(board, player, column), player)]


def search(board, player, rng):
    """Takes a win, stops one, hands none over, and else draws."""
    for best in (wins(board, player), wins(board, 1 - player)):
        if best:
            return best[0]
    good = [column for column in moves(board) if column not in wins(dropped(board, player, column), 1 - player)]
    return rng.choice(good or moves(board))


class Policy:
    """Two layers and a linear one, of connect4_ppo: the most likely column."""

    def __init__(self, run):
        weights = load_file(pathlib.Path(run) / "checkpoints" / "latest" / "weights.safetensors")
        names = sorted({name.rsplit(".", 1)[0] for name in weights if name.startswith("trunk.")}) + ["policy"]
        self.layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]

    def __call__(self, board, player):
        values = np.concatenate([(board == player).ravel(), (board == 1 - player).ravel()]).astype(np.float32)
        for number, (weight, bias) in enumerate(self.layers):
            values = weight @ (np.maximum(values, 0) if number else values) + bias
        return max(moves(board), key=lambda column: values[column])


def play(policy, first, rng):
    """1: the policy won, -1: it lost, 0: drawn. `first`: it began."""
    board, turn = np.full((ROWS, COLUMNS), EMPTY), 0
    policys = 0 if first else 1
    while moves(board):
        column = policy(board, turn) if turn == policys else search(board, turn, rng)
        board = dropped(board, turn, column)
        if has_four(board, turn):
            return 1 if turn == policys else -1
        turn = 1 - turn
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--games", type=int, default=400, help="half begun by each")
    options = parser.parse_args()
    policy, rng = Policy(options.run), np.random.default_rng(0)
    for first, words in ((True, "begun by the policy"), (False, "begun by the search")):
        results = [play(policy, first, rng) for _ in range(options.games // 2)]
        print(f"{words}: {results.count(1)} won, {results.count(-1)} lost, {results.count(0)} drawn of {len(results)}")


if __name__ == "__main__":
    main()
