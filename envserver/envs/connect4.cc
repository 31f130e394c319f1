#include "envserver/envs/connect4.h"

#include "absl/strings/str_cat.h"
#include "envserver/picture.h"

namespace flotilla {
namespace {

constexpr int kColumns = ConnectFourBoard::kColumns;
constexpr int kRows = ConnectFourBoard::kRows;
constexpr int kStride = kRows + 1;  // bits of a column
constexpr size_t kCells = kColumns * kRows;

bool HasFour(uint64_t stones) {
  // Up, along a row, and both diagonals: the empty bits keep columns apart.
  for (const int step : {1, kStride, kStride - 1, kStride + 1}) {
    const uint64_t pairs = stones & (stones >> step);
    if ((pairs & (pairs >> (2 * step))) != 0) return true;
  }
  return false;
}

}  // namespace

bool ConnectFourBoard::CanDrop(int column) const {
  return !Has(0, kRows - 1, column) && !Has(1, kRows - 1, column);
}

bool ConnectFourBoard::Full() const { return Moves().empty(); }

std::vector<int> ConnectFourBoard::Moves() const {
  std::vector<int> moves;
  for (int column = 0; column < kColumns; ++column) {
    if (CanDrop(column)) moves.push_back(column);
  }
  return moves;
}

bool ConnectFourBoard::Drop(int player, int column) {
  int row = 0;
  while (Has(0, row, column) || Has(1, row, column)) ++row;
  stones_[player] |= uint64_t{1} << (column * kStride + row);
  return HasFour(stones_[player]);
}

int ChooseColumn(ConnectFourOpponent opponent, const ConnectFourBoard& board,
                 int player, Random* random) {
  const std::vector<int> moves = board.Moves();
  if (opponent != ConnectFourOpponent::kRandom) {
    for (const int column : moves) {
      if (board.Wins(player, column)) return column;
    }
  }
  std::vector<int> good;
  if (opponent == ConnectFourOpponent::kTwoPly) {
    for (const int column : moves) {
      if (board.Wins(1 - player, column)) return column;
    }
    for (const int column : moves) {
      ConnectFourBoard next = board;
      next.Drop(player, column);
      // Nothing else can be new: without this stone nobody could win there.
      const bool hands_it =
          next.CanDrop(column) && next.Wins(1 - player, column);
      if (!hands_it) good.push_back(column);
    }
  }
  if (good.empty()) good = moves;
  return good[random->Below(good.size())];
}

absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> Connect4::Make(
    const std::string& opponent) {
  const std::pair<const char*, ConnectFourOpponent> known[] = {
      {"random", ConnectFourOpponent::kRandom},
      {"one_ply", ConnectFourOpponent::kOnePly},
      {"two_ply", ConnectFourOpponent::kTwoPly}};
  for (const auto& [name, value] : known) {
    if (opponent != name) continue;
    return std::unique_ptr<MultiAgentEnvironment>(new Connect4(&value));
  }
  if (opponent.empty()) {
    return std::unique_ptr<MultiAgentEnvironment>(new Connect4(nullptr));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "env.options.kwargs.opponent is \"", opponent,
      "\", want random, one_ply or two_ply, or \"\" for two agents"));
}

Connect4::Connect4(const ConnectFourOpponent* opponent)
    : scripted_(opponent != nullptr),
      opponent_(scripted_ ? *opponent : ConnectFourOpponent::kRandom) {
  spec_.set_env_id("Connect4");
  spec_.set_agents(scripted_ ? 1 : 2);
  spec_.add_episode_metric("score");
  v1::Leaf* board = spec_.add_observation();
  board->set_path("board");
  board->set_dtype(v1::FLOAT32);
  board->add_shape(2 * kCells);
  board->add_low(0);
  board->add_high(1);
  v1::Leaf* mask = spec_.add_observation();
  mask->set_path("mask");
  mask->set_dtype(v1::UINT8);
  mask->add_shape(kColumns);
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(kColumns);
  action->set_mask_path("mask");
  spec_.set_action_mask_path("mask");
}

absl::Status Connect4::ResetSlots(uint64_t seed, std::span<Slot> slots) {
  random_ = Random(seed);
  board_ = ConnectFourBoard();
  over_ = false;
  turn_ = static_cast<int>(random_.Below(2));
  if (scripted_ && turn_ == 1) LetOpponentPlay();
  Observe(slots);
  return absl::OkStatus();
}

absl::Status Connect4::StepSlots(std::span<Slot> slots) {
  score_[0] = score_[1] = 0.5;  // as a step limit leaves it
  Play(static_cast<int>(ReadValue<int64_t>(slots[turn_].action[0])));
  if (scripted_ && !over_) LetOpponentPlay();
  Observe(slots);
  for (size_t s = 0; over_ && s < slots.size(); ++s) {
    slots[s].outcome = {.reward = static_cast<float>(2 * score_[s] - 1),
                        .terminated = true};
  }
  return absl::OkStatus();
}

bool Connect4::SlotGameOver(size_t slot, v1::EpisodeEnd* end) {
  (*end->mutable_metric())["score"] = score_[slot];
  return true;
}

void Connect4::Play(int column) {
  const bool allowed = board_.CanDrop(column);
  const bool won = allowed && board_.Drop(turn_, column);
  over_ = won || !allowed || board_.Full();
  if (over_) {
    score_[turn_] = won ? 1 : allowed ? 0.5 : 0;
    score_[1 - turn_] = 1 - score_[turn_];
  }
  turn_ = 1 - turn_;
}

void Connect4::LetOpponentPlay() {
  Play(ChooseColumn(opponent_, board_, turn_, &random_));
}

v1::Frame Connect4::Render() const {
  constexpr double kCell = 48;  // pixels
  Picture picture(static_cast<int>(kCell) * kColumns,
                  static_cast<int>(kCell) * kRows, {45, 80, 170});
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const Color color = board_.Has(0, row, column)   ? Color{250, 210, 60}
                          : board_.Has(1, row, column) ? Color{220, 60, 60}
                                                       : Color{235, 238, 245};
      picture.Disc({(column + 0.5) * kCell, (kRows - row - 0.5) * kCell},
                   0.4 * kCell, color);
    }
  }
  return picture.frame();
}

void Connect4::Observe(std::span<Slot> slots) const {
  for (size_t s = 0; s < slots.size(); ++s) {
    const int own = static_cast<int>(s);
    slots[s].active = own == turn_;
    for (size_t cell = 0; cell < kCells; ++cell) {
      const int row = kRows - 1 - static_cast<int>(cell) / kColumns;
      const int column = static_cast<int>(cell) % kColumns;
      for (const int other : {0, 1}) {
        const int player = other == 0 ? own : 1 - own;
        WriteValue(slots[s].observation[0], cell + other * kCells,
                   board_.Has(player, row, column) ? 1.0f : 0.0f);
      }
    }
    for (int column = 0; column < kColumns; ++column) {
      WriteValue<uint8_t>(slots[s].observation[1], column,
                          board_.CanDrop(column) ? 1 : 0);
    }
  }
}

}  // namespace flotilla
