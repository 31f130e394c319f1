#include "envserver/envs/invaders.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "envserver/envs/frame_skip.h"
#include "envserver/picture.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

using Game = InvadersGame;

constexpr int kFormation = (Game::kColumns - 1) * Game::kPitch + Game::kInvader;
constexpr int kFurthest = Game::kWidth - Game::kInvader;  // an invader's left
constexpr int kCannonLast = Game::kWidth - Game::kCannonWidth;
constexpr uint64_t kAllInvaders = (uint64_t{1} << Game::kInvaders) - 1;
constexpr uint64_t kAllCells = (uint64_t{1} << Game::kShieldCells) - 1;
constexpr int kSlowest = 1 + Game::kInvaders / 3;  // ticks between two steps
constexpr uint64_t kTicksAShot = 20;  // on average, while fewer fly than may

constexpr int kCellsAShield = Game::kShieldColumns * Game::kShieldRows;
constexpr int kShieldWidth = Game::kShieldColumns * Game::kShieldCell;
constexpr int kShieldBottom =
    Game::kShieldTop + Game::kShieldRows * Game::kShieldCell;

constexpr int ShieldLeft(int shield) { return 24 + 48 * shield; }
static_assert(ShieldLeft(0) + ShieldLeft(Game::kShields - 1) + kShieldWidth ==
              Game::kWidth);

constexpr int PointsOf(int row) { return 5 * (Game::kRows - row); }

}  // namespace

void InvadersGame::Reset(uint64_t seed) {
  random_ = Random(seed);
  lives_ = kLives;
  wave_ = 0;
  score_ = 0;
  landed_ = false;
  cannon_ = kCannonLast / 2;
  BeginWave();
}

// From anywhere along x, either way.
void InvadersGame::BeginWave() {
  alive_ = kAllInvaders;
  shields_ = kAllCells;
  left_ = kMarch *
          static_cast<int>(random_.Below((kWidth - kFormation) / kMarch + 1));
  top_ = kFirstTop + kLowerByWave * wave_;
  direction_ = random_.Below(2) == 0 ? -1 : 1;
  wait_ = kSlowest;
  shot_.flies = false;
  for (Shot& shot : theirs_) shot.flies = false;
}

int InvadersGame::Step(int64_t action, int ticks) {
  const int before = score_;
  const int direction = action == 2 || action == 4   ? 1
                        : action == 3 || action == 5 ? -1
                                                     : 0;
  const bool fire = action == 1 || action >= 4;
  for (int i = 0; i < ticks && !over(); ++i) Tick(direction, fire);
  return score_ - before;
}

void InvadersGame::Tick(int direction, bool fire) {
  cannon_ = std::clamp(cannon_ + direction, 0, kCannonLast);
  if (fire && !shot_.flies) {
    shot_ = {cannon_ + kCannonWidth / 2, kCannonTop - kShotHeight, true};
  } else if (shot_.flies) {
    MoveShot();
  }
  if (alive_ == 0) {
    ++wave_;
    if (!over()) BeginWave();
    return;
  }
  if (--wait_ <= 0) March();
  Fire();
  MoveTheirShots();
}

void InvadersGame::MoveShot() {
  shot_.y -= kShotStep;
  // Shields are thicker than a step is long.
  if (shot_.y + kShotHeight <= 0 ||
      HitShield(shot_.x, shot_.y, shot_.y + kShotStep)) {
    shot_.flies = false;
    return;
  }
  const int x = shot_.x - left_;
  if (x < 0 || x >= kFormation || x % kPitch >= kInvader) return;
  const int column = x / kPitch;
  // Its tip, or what it passed since the tick before: the lowest is met first.
  for (int row = kRows - 1; row >= 0; --row) {
    if (!IsAlive(row, column) || shot_.y >= TopOf(row) + kInvader ||
        shot_.y + kShotStep < TopOf(row)) {
      continue;
    }
    alive_ &= ~(uint64_t{1} << (row * kColumns + column));
    score_ += PointsOf(row);
    shot_.flies = false;
    return;
  }
}

void InvadersGame::March() {
  uint64_t columns = 0;  // that live
  for (int row = 0; row < kRows; ++row) columns |= alive_ >> (row * kColumns);
  columns &= (1 << kColumns) - 1;
  const int first = std::countr_zero(columns);
  const int last = std::bit_width(columns) - 1;
  if (LeftOf(first) + direction_ * kMarch < 0 ||
      LeftOf(last) + direction_ * kMarch > kFurthest) {
    direction_ = -direction_;
    top_ += kDrop;
    const int lowest = (std::bit_width(alive_) - 1) / kColumns;
    const int bottom = TopOf(lowest) + kInvader;
    if (bottom > kCannonTop) landed_ = true;
    if (bottom > kShieldTop) CrushShields();
  } else {
    left_ += direction_ * kMarch;
  }
  wait_ = 1 + std::popcount(alive_) / 3;
}

// From below the lowest invader of a column.
void InvadersGame::Fire() {
  const auto free = std::find_if(theirs_.begin(), theirs_.end(),
                                 [](const Shot& shot) { return !shot.flies; });
  if (free == theirs_.end() || random_.Below(kTicksAShot) != 0) return;
  const int column = static_cast<int>(random_.Below(kColumns));
  for (int row = kRows - 1; row >= 0; --row) {
    if (!IsAlive(row, column)) continue;
    *free = {LeftOf(column) + kInvader / 2, TopOf(row) + kInvader, true};
    return;
  }
}

void InvadersGame::MoveTheirShots() {
  for (Shot& shot : theirs_) {
    if (!shot.flies) continue;
    shot.y += kTheirShotStep;
    const int tip = shot.y + kShotHeight;
    if (shot.y >= kHeight || HitShield(shot.x, tip - kTheirShotStep, tip)) {
      shot.flies = false;
    } else if (tip > kCannonTop && shot.y < kCannonTop + kCannonHeight &&
               shot.x >= cannon_ && shot.x < cannon_ + kCannonWidth) {
      // Nothing else hits the next one before it could move.
      --lives_;
      cannon_ = kCannonLast / 2;
      for (Shot& other : theirs_) other.flies = false;
      return;
    }
  }
}

bool InvadersGame::HitShield(int x, int top, int bottom) {
  if (bottom <= kShieldTop || top >= kShieldBottom) return false;
  for (int shield = 0; shield < kShields; ++shield) {
    const int inside = x - ShieldLeft(shield);
    if (inside < 0 || inside >= kShieldWidth) continue;
    for (int row = 0; row < kShieldRows; ++row) {
      const int cell_top = kShieldTop + row * kShieldCell;
      const uint64_t cell = uint64_t{1}
                            << (shield * kCellsAShield + row * kShieldColumns +
                                inside / kShieldCell);
      if ((shields_ & cell) == 0 || bottom <= cell_top ||
          top >= cell_top + kShieldCell) {
        continue;
      }
      shields_ &= ~cell;
      return true;
    }
  }
  return false;
}

// What an invader has come down to is gone.
void InvadersGame::CrushShields() {
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      if (!IsAlive(row, column)) continue;
      for (int x = 0; x < kInvader; ++x) {
        while (
            HitShield(LeftOf(column) + x, TopOf(row), TopOf(row) + kInvader)) {
        }
      }
    }
  }
}

void InvadersGame::Observe(void* to) const {
  float seen[kObserved];
  float* next = seen;
  constexpr float kX = 1.0f / kWidth, kY = 1.0f / kHeight;
  *next++ = static_cast<float>(cannon_) * (1.0f / kCannonLast);
  const auto see = [&](const Shot& shot, int from) {
    *next++ = shot.flies ? 1 : 0;
    *next++ = shot.flies ? static_cast<float>(shot.x - from) * kX : 0;
    *next++ = shot.flies ? static_cast<float>(shot.y) * kY : 0;
  };
  see(shot_, 0);
  *next++ = static_cast<float>(lives_) * (1.0f / kLives);
  *next++ = static_cast<float>(wave_) * (1.0f / kWaves);
  for (const Shot& shot : theirs_) see(shot, cannon_ + kCannonWidth / 2);
  // What is left of a formation may go beyond the sides of a whole one.
  *next++ = static_cast<float>(2 * left_ + kFormation - kWidth) * kX;
  *next++ = static_cast<float>(top_) * kY;
  *next++ = static_cast<float>(direction_);
  *next++ = static_cast<float>(wait_) * (1.0f / kSlowest);
  for (int i = 0; i < kInvaders; ++i) {
    *next++ = static_cast<float>(alive_ >> i & 1);
  }
  for (int i = 0; i < kShieldCells; ++i) {
    *next++ = static_cast<float>(shields_ >> i & 1);
  }
  std::memcpy(to, seen, sizeof seen);
}

std::vector<EnvironmentOption> Invaders::Options() {
  return {{"frame_skip", 4, "ticks that a step takes"}};
}

absl::StatusOr<std::unique_ptr<BatchEnvironment>> Invaders::Make(
    const EnvironmentArguments& arguments, size_t environments) {
  ASSIGN_OR_RETURN(const int frame_skip, FrameSkip(arguments));
  return std::unique_ptr<BatchEnvironment>(
      new Invaders(environments, frame_skip));
}

Invaders::Invaders(size_t environments, int frame_skip)
    : GameBatch("Invaders", environments, frame_skip) {
  mutable_spec().add_episode_metric("score");
  mutable_spec().add_episode_metric("waves");
}

void Invaders::GameOver(size_t environment, size_t /*agent*/,
                        v1::EpisodeEnd* end) {
  auto& metric = *end->mutable_metric();
  metric["score"] = game(environment).score();
  metric["waves"] = game(environment).waves();
}

v1::Frame InvadersGame::Render() const {
  constexpr int kZoom = 3;
  constexpr Color kRowColors[] = {{200, 72, 160}, {160, 90, 210},
                                  {90, 120, 220}, {72, 170, 200},
                                  {90, 190, 110}, {200, 180, 80}};
  constexpr Color kOwn = {92, 186, 92}, kFire = {236, 236, 236},
                  kShield = {190, 110, 60};
  Picture picture(kWidth * kZoom, kHeight * kZoom, {20, 22, 30});
  const auto box = [&](double x, double y, double width, double height,
                       Color color) {
    picture.Rectangle({x * kZoom, y * kZoom},
                      {(x + width) * kZoom, (y + height) * kZoom}, color);
  };
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      if (!IsAlive(row, column)) continue;
      const double x = LeftOf(column), y = TopOf(row);
      box(x, y, kInvader, kInvader - 2, kRowColors[row]);
      // Legs, and eyes.
      for (const int i : {0, 3, 6}) {
        box(x + i, y + kInvader - 2, 2, 2, kRowColors[row]);
      }
      for (const int i : {2, 5}) box(x + i, y + 2, 1, 1, {20, 22, 30});
    }
  }
  for (int i = 0; i < kShieldCells; ++i) {
    if ((shields_ >> i & 1) == 0) continue;
    const int cell = i % kCellsAShield;
    box(ShieldLeft(i / kCellsAShield) + cell % kShieldColumns * kShieldCell,
        kShieldTop + cell / kShieldColumns * kShieldCell, kShieldCell,
        kShieldCell, kShield);
  }
  for (const Shot& shot : theirs_) {
    if (shot.flies) box(shot.x, shot.y, 1, kShotHeight, kFire);
  }
  if (shot_.flies) box(shot_.x, shot_.y, 1, kShotHeight, kOwn);
  box(cannon_, kCannonTop + 3, kCannonWidth, kCannonHeight - 3, kOwn);
  box(cannon_ + 3, kCannonTop, 2, 3, kOwn);
  for (int life = 0; life < lives_; ++life) {
    picture.Disc({14.0 + 20 * life, 14}, 7, kOwn);
  }
  return picture.frame();
}

}  // namespace flotilla
