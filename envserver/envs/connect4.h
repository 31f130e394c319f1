#ifndef FLOTILLA_ENVSERVER_ENVS_CONNECT4_H_
#define FLOTILLA_ENVSERVER_ENVS_CONNECT4_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/multi_agent_environment.h"
#include "services/base/random.h"

namespace flotilla {

// A board of Connect Four: seven columns of six, each a run of seven bits, the
// lowest cell first, whose last stays empty.
class ConnectFourBoard {
 public:
  static constexpr int kColumns = 7;
  static constexpr int kRows = 6;

  bool CanDrop(int column) const;
  bool Full() const;
  // Columns that CanDrop, ascending.
  std::vector<int> Moves() const;

  // `player`, 0 or 1, drops a stone into a column that CanDrop. Returns whether
  // that makes four in a row.
  bool Drop(int player, int column);

  // Whether a drop would make four.
  bool Wins(int player, int column) const {
    return ConnectFourBoard(*this).Drop(player, column);
  }

  // Row 0 is the lowest.
  bool Has(int player, int row, int column) const {
    return (stones_[player] >> (column * (kRows + 1) + row) & 1) != 0;
  }

 private:
  uint64_t stones_[2] = {};
};

// Who plays the other side of Connect4.
enum class ConnectFourOpponent {
  kRandom,  // any column that is not full
  kOnePly,  // wins if it can now, else as kRandom
  // Wins if it can now, else is where the other would win, else random among
  // what does not let the other win next; among all if there is nothing else.
  kTwoPly,
};

// The column that `player` plays next. The board is not full.
int ChooseColumn(ConnectFourOpponent opponent, const ConnectFourBoard& board,
                 int player, Random* random);

// Connect Four (Allis 1988): two take turns to drop stones into columns; who has
// four in a row, column or diagonal first wins.
//
//   observation  board  float32 [84]  the slot's own stones, then the other's, 1
//                                     each: 6 x 7, row by row, the topmost first
//                mask   uint8 [7]     columns that are not full
//   action       int64 []             a column
//   reward       at the end 1 to who won, -1 to the other, 0 to both if the board
//                is full; a stone for a full column loses
//   score        1, 0 or 0.5
//
// Of two agents, one is active at a time; which of the slots begins is the
// seed's to say. With an opponent there is one agent, which plays against it, and
// sees the board when it is its turn.
class Connect4 final : public MultiAgentEnvironment {
 public:
  // `opponent`: "random", "one_ply" or "two_ply"; "": two agents.
  // Errors: kInvalidArgument for another.
  static absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> Make(
      const std::string& opponent);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override;
  absl::Status StepSlots(std::span<Slot> slots) override;
  bool SlotGameOver(size_t slot, v1::EpisodeEnd* end) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

 private:
  explicit Connect4(const ConnectFourOpponent* opponent);

  // The player whose turn it is drops a stone.
  void Play(int column);
  void LetOpponentPlay();
  void Observe(std::span<Slot> slots) const;

  const bool scripted_;
  const ConnectFourOpponent opponent_;
  v1::EnvSpec spec_;
  Random random_{0};
  ConnectFourBoard board_;
  int turn_ = 0;  // 0 or 1: a slot, or the scripted player
  bool over_ = false;
  double score_[2] = {};
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_CONNECT4_H_
