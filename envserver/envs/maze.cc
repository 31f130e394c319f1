#include "envserver/envs/maze.h"

#include <deque>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/picture.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr std::pair<int, int> kMoves[] = {{-1, 0}, {0, 1}, {1, 0}, {0, -1}};

}  // namespace

absl::StatusOr<std::unique_ptr<Environment>> Maze::Make(
    const v1::MazeOptions& options) {
  for (const auto& [name, value, low, odd] :
       {std::tuple("size", int64_t{options.size()}, 5, true),
        std::tuple("view", int64_t{options.view()}, 1, true),
        std::tuple("episode_steps", options.episode_steps(), 1, false)}) {
    const int64_t high = odd ? 1001 : int64_t{1} << 31;
    if (value < low || value > high || (odd && value % 2 == 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("env.options.maze.", name, " is ", value, ", want ",
                       odd ? "an odd number from " : "", low, " to ", high));
    }
  }
  return std::unique_ptr<Environment>(new Maze(options));
}

Maze::Maze(const v1::MazeOptions& options)
    : size_(options.size()), view_(options.view()), wall_(size_ * size_) {
  spec_.set_env_id("Maze");
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::FLOAT32);
  observation->add_shape(2 * view_ * view_);
  observation->add_low(0);
  observation->add_high(1);
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(4);
  spec_.set_max_episode_steps(options.episode_steps());
  spec_.add_episode_metric("spl");
  spec_.add_episode_metric("success");
}

absl::Status Maze::Reset(uint64_t seed, Row observation) {
  Carve(seed);
  y_ = x_ = 1;
  shortest_ = ShortestWay();
  steps_ = 0;
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Maze::Step(ConstRow action, Row observation) {
  const auto [dy, dx] = kMoves[ReadValue<int64_t>(action[0])];
  if (!IsWall(y_ + dy, x_ + dx)) {
    y_ += dy;
    x_ += dx;
  }
  ++steps_;
  const bool success = y_ == size_ - 2 && x_ == size_ - 2;
  spl_ = success ? static_cast<double>(shortest_) / steps_ : 0;
  Observe(observation);
  Outcome outcome;
  outcome.reward = success ? 1 : 0;
  outcome.terminated = success;
  return outcome;
}

bool Maze::GameOver(v1::EpisodeEnd* end) {
  (*end->mutable_metric())["success"] = spl_ > 0 ? 1 : 0;
  (*end->mutable_metric())["spl"] = spl_;
  return true;
}

// Depth first, from cell to cell two apart, through the wall between them.
void Maze::Carve(uint64_t seed) {
  Random random(seed);
  wall_.assign(wall_.size(), true);
  std::vector<std::pair<int, int>> path = {{1, 1}};
  wall_[size_ + 1] = false;
  while (!path.empty()) {
    const auto [y, x] = path.back();
    std::pair<int, int> open[4];
    int count = 0;
    for (const auto& [dy, dx] : kMoves) {
      const int to_y = y + 2 * dy, to_x = x + 2 * dx;
      const bool inside =
          to_y > 0 && to_y < size_ - 1 && to_x > 0 && to_x < size_ - 1;
      if (inside && IsWall(to_y, to_x)) open[count++] = {dy, dx};
    }
    if (count == 0) {
      path.pop_back();
      continue;
    }
    const auto [dy, dx] = open[random.Below(count)];
    wall_[(y + dy) * size_ + x + dx] = false;
    wall_[(y + 2 * dy) * size_ + x + 2 * dx] = false;
    path.emplace_back(y + 2 * dy, x + 2 * dx);
  }
}

// Breadth first.
int Maze::ShortestWay() const {
  std::vector<int> distance(wall_.size(), -1);
  std::deque<std::pair<int, int>> queue = {{y_, x_}};
  distance[y_ * size_ + x_] = 0;
  while (!queue.empty()) {
    const auto [y, x] = queue.front();
    queue.pop_front();
    const int here = distance[y * size_ + x];
    if (y == size_ - 2 && x == size_ - 2) return here;
    for (const auto& [dy, dx] : kMoves) {
      int& there = distance[(y + dy) * size_ + x + dx];
      if (IsWall(y + dy, x + dx) || there >= 0) continue;
      there = here + 1;
      queue.emplace_back(y + dy, x + dx);
    }
  }
  return 0;
}

bool Maze::IsWall(int y, int x) const {
  return y < 0 || y >= size_ || x < 0 || x >= size_ || wall_[y * size_ + x];
}

v1::Frame Maze::Render() const {
  const int cell = std::max(4, 320 / size_);  // pixels
  Picture picture(cell * size_, cell * size_, {255, 255, 255});
  const auto fill = [&](int y, int x, Color color) {
    picture.Rectangle({double(x) * cell, double(y) * cell},
                      {(x + 1.0) * cell, (y + 1.0) * cell}, color);
  };
  for (int y = 0; y < size_; ++y) {
    for (int x = 0; x < size_; ++x) {
      // What it sees is lighter.
      const bool seen =
          std::abs(y - y_) <= view_ / 2 && std::abs(x - x_) <= view_ / 2;
      if (IsWall(y, x)) {
        fill(y, x, seen ? Color{90, 90, 110} : Color{40, 40, 50});
      } else if (!seen) {
        fill(y, x, {215, 215, 215});
      }
    }
  }
  fill(size_ - 2, size_ - 2, {80, 180, 90});
  picture.Disc({(x_ + 0.5) * cell, (y_ + 0.5) * cell}, 0.35 * cell,
               {204, 77, 77});
  return picture.frame();
}

void Maze::Observe(Row observation) const {
  const int reach = view_ / 2;
  size_t i = 0;
  const size_t cells = static_cast<size_t>(view_) * view_;
  for (int y = y_ - reach; y <= y_ + reach; ++y) {
    for (int x = x_ - reach; x <= x_ + reach; ++x, ++i) {
      const bool goal = y == size_ - 2 && x == size_ - 2;
      WriteValue(observation[0], i, IsWall(y, x) ? 1.0f : 0.0f);
      WriteValue(observation[0], cells + i, goal ? 1.0f : 0.0f);
    }
  }
}

}  // namespace flotilla
