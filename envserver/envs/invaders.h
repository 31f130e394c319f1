#ifndef FLOTILLA_ENVSERVER_ENVS_INVADERS_H_
#define FLOTILLA_ENVSERVER_ENVS_INVADERS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment_arguments.h"
#include "envserver/envs/game_batch.h"
#include "services/base/random.h"

namespace flotilla {

// One game of invaders, in pixels and ticks. (0, 0) is the upper left; the cannon
// is on the ground. Whatever moves is placed by its upper left corner.
//
// A tick moves the cannon, its shot, the invaders, and then their shots.
class InvadersGame {
 public:
  static constexpr int kRows = 6, kColumns = 6, kInvaders = kRows * kColumns;
  static constexpr int kWaves = 5;
  static constexpr int kLives = 3;
  static constexpr int kShots = 3;  // of the invaders, at most in flight
  static constexpr int kShields = 3;
  static constexpr int kShieldColumns = 4, kShieldRows = 2;
  static constexpr int kShieldCells = kShields * kShieldColumns * kShieldRows;

  static constexpr int kWidth = 160, kHeight = 192;
  static constexpr int kInvader = 8, kPitch = 16;  // a square; to the next one
  static constexpr int kMarch = 2, kDrop = 6;      // along x, and at a side
  static constexpr int kFirstTop = 30, kLowerByWave = 8;
  static constexpr int kCannonWidth = 8, kCannonHeight = 8, kCannonTop = 172;
  static constexpr int kShotHeight = 6;  // one pixel wide
  static constexpr int kShotStep = 4, kTheirShotStep = 2;
  static constexpr int kShieldTop = 148, kShieldCell = 4;

  // Of all invaders of a wave, and of all waves.
  static constexpr int kWaveScore = 5 * kColumns * kRows * (kRows + 1) / 2;
  static constexpr int kMaxScore = kWaves * kWaveScore;
  static constexpr int kObserved =
      6 + 3 * kShots + 4 + kInvaders + kShieldCells;
  static constexpr int kActions = 6, kMaxSteps = 10000;
  static constexpr float kRewardOfAPoint = 0.1f;

  void Reset(uint64_t seed);

  // Takes an action for `ticks` ticks, or until the game is over. Returns the
  // points made.
  int Step(int64_t action, int ticks);

  // By the last life, by an invader on the ground, or by the last wave.
  bool over() const { return lives_ == 0 || landed_ || wave_ == kWaves; }
  int score() const { return score_; }
  int lives() const { return lives_; }
  int waves() const { return wave_; }  // shot down

  // What Invaders observes, [kObserved].
  void Observe(void* to) const;

  v1::Frame Render() const;

 private:
  struct Shot {
    int x = 0, y = 0;
    bool flies = false;
  };

  void BeginWave();
  void Tick(int direction, bool fire);
  void MoveShot();
  void March();
  void Fire();
  void MoveTheirShots();
  // Whether a cell of a shield was there; it is not any longer.
  bool HitShield(int x, int top, int bottom);
  void CrushShields();

  bool IsAlive(int row, int column) const {
    return (alive_ >> (row * kColumns + column) & 1) != 0;
  }
  int LeftOf(int column) const { return left_ + column * kPitch; }
  int TopOf(int row) const { return top_ + row * kPitch; }

  uint64_t alive_;  // a bit for each, row by row from the top
  int left_, top_;  // of the formation, were it whole
  int direction_;   // 1: to the right
  int wait_;        // ticks to its next step
  int cannon_;      // x
  Shot shot_;
  std::array<Shot, kShots> theirs_;
  uint64_t
      shields_;  // a bit for each cell, row by row of one shield, then the next
  int lives_, wave_, score_;
  bool landed_;
  Random random_{0};
};

// Invaders: six rows march to and fro, a step lower at each side, faster the fewer
// they are, and shoot; a cannon shoots one shot at a time from behind shields that
// shots of both sides wear down. Who has shot all meets the next wave, which begins
// lower.
//
//   observation  float32 [79]  cannon's x / 152; its shot: in flight, x / 160,
//                              y / 192; lives / 3; waves shot down / 5; three shots
//                              of theirs alike, x from the cannon's middle / 160; the
//                              formation's left (0: it is in the middle) and top /
//                              192, its direction (-1, 1) and ticks to its next step
//                              / 13; each invader, row by row from the top: 1 if it
//                              lives; each cell of the shields: 1 if it stands
//   action       int64 []      wait, fire, right, left, right and fire, left and fire
//   reward       points / 10: an invader's are 30, 25, 20, 15, 10, 5 by row from
//                the top
//   ends         when three lives are lost, when an invader is down at the cannon, or
//                after five waves, 3,150 points; a time limit ends it after 10,000
//                steps
//   metrics      "score"  points
//                "waves"  shot down
//
// frame_skip (4): ticks that a step takes.
//
// The actions, the rows of six and their points are those of Atari's Space Invaders.
// All else is ours: speeds, shields, five waves, and what is observed.
class Invaders final : public GameBatch<InvadersGame> {
 public:
  static std::vector<EnvironmentOption> Options();
  // Errors: kInvalidArgument if an option does not fit.
  static absl::StatusOr<std::unique_ptr<BatchEnvironment>> Make(
      const EnvironmentArguments& arguments, size_t environments);

  void GameOver(size_t environment, size_t agent, v1::EpisodeEnd* end) override;

 private:
  Invaders(size_t environments, int frame_skip);
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_INVADERS_H_
