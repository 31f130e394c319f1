#include "envserver/envs/snake.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "envserver/picture.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

constexpr size_t kBytes = SnakeField::kObserved * sizeof(float);
// Cells are drawn at random: at most half of them are taken.
constexpr int kTries = 64;
// Of all fields of a stream.
constexpr size_t kMaxFieldBytes = size_t{1} << 30;

}  // namespace

SnakeField::SnakeField(const Size& size)
    : size_(size),
      stride_(size.width + 2 * kVision),
      step_{-stride_, 1, stride_, -1},
      // Views are read 16 cells at a time.
      cells_(static_cast<size_t>(stride_ * (size.height + 2 * kVision) + 16)),
      snakes_(static_cast<size_t>(size.snakes)),
      rings_(static_cast<size_t>(size.snakes * size.longest)) {}

void SnakeField::Reset(uint64_t seed) {
  random_ = Random(seed);
  std::fill(cells_.begin(), cells_.end(), kDeadly);
  for (int y = 0; y < size_.height; ++y) {
    std::fill_n(cells_.begin() + Index(0, y), size_.width, kEmpty);
  }
  for (int i = 0; i < size_.snakes; ++i) Place(i);
  food_ = 0;
  Replenish();
}

int SnakeField::RandomCell() {
  for (int i = 0; i < kTries; ++i) {
    const auto x =
        static_cast<int>(random_.Below(static_cast<uint64_t>(size_.width)));
    const auto y =
        static_cast<int>(random_.Below(static_cast<uint64_t>(size_.height)));
    if (cells_[Index(x, y)] == kEmpty) return Index(x, y);
  }
  return -1;
}

int& SnakeField::Body(int snake, int ago) {
  const int at = snakes_[snake].newest - ago;
  return rings_[snake * size_.longest + (at < 0 ? at + size_.longest : at)];
}

void SnakeField::Place(int snake) {
  int cell = RandomCell();
  // So unlikely that the time it takes is nobody's: half of all are empty.
  for (size_t i = 0; cell < 0; ++i) {
    if (cells_[i] == kEmpty) cell = static_cast<int>(i);
  }
  cells_[cell] = kDeadly;
  snakes_[snake] = {cell, -1, 1, 0};
  Body(snake, 0) = cell;
}

void SnakeField::Die(int snake) {
  for (int ago = 0; ago < snakes_[snake].length; ++ago) {
    cells_[Body(snake, ago)] = ago % 2 == 1 ? kFood : kEmpty;
    food_ += ago % 2;
  }
  Place(snake);
}

SnakeField::Move SnakeField::Go(int snake, int64_t action) {
  Snake& self = snakes_[snake];
  const int wanted = static_cast<int>(action);
  if (self.length == 1 || (wanted ^ 2) != self.direction) {
    self.direction = wanted;
  }
  const int to = self.head + step_[self.direction];
  const Cell found = cells_[to];
  if (found == kDeadly) {
    Die(snake);
    return Move::kDied;
  }
  if (found == kFood) --food_;
  if (found == kFood && self.length < size_.longest) {
    ++self.length;
  } else {
    cells_[Body(snake, self.length - 1)] = kEmpty;
  }
  self.head = to;
  self.newest = self.newest + 1 == size_.longest ? 0 : self.newest + 1;
  Body(snake, 0) = to;
  cells_[to] = kDeadly;
  return found == kFood ? Move::kAte : Move::kWent;
}

void SnakeField::Replenish() {
  while (food_ < size_.food) {
    const int cell = RandomCell();
    if (cell < 0) return;
    cells_[cell] = kFood;
    ++food_;
  }
}

void SnakeField::Observe(int snake, float* to) const {
  const Cell* from =
      cells_.data() + snakes_[snake].head - kVision * stride_ - kVision;
  // Sixteen at a time; what is too much is written over.
  float wide[kObserved + 16];
  for (int y = 0; y < kView; ++y, from += stride_) {
    for (int x = 0; x < 16; ++x) {
      wide[y * kView + x] = static_cast<float>(static_cast<int8_t>(from[x]));
    }
  }
  std::memcpy(to, wide, kBytes);
}

size_t SnakeField::bytes() const {
  return cells_.size() * sizeof(Cell) + snakes_.size() * sizeof(Snake) +
         rings_.size() * sizeof(int);
}

std::vector<EnvironmentOption> Snake::Options() {
  return {{"agents", 256, "snakes on a field, each a row"},
          {"food", 4096, "cells of food"},
          {"height", 360, "cells"},
          {"longest", 256, "cells that a snake has at most"},
          {"reward_death", -1.0, "of a death"},
          {"reward_food", 0.1, "of a cell of food"},
          {"width", 640, "cells"}};
}

absl::StatusOr<std::unique_ptr<BatchEnvironment>> Snake::Make(
    const EnvironmentArguments& arguments, size_t environments) {
  SnakeField::Size size = {};
  const auto read = [&](const char* name, int64_t least, int64_t most,
                        int* value) {
    const int64_t given = arguments.Int(name);
    if (given < least || given > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("env.options.kwargs.", name, " is ", given, ", want ",
                       least, " to ", most));
    }
    *value = static_cast<int>(given);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read("agents", 1, 1024, &size.snakes));
  RETURN_IF_ERROR(read("food", 0, 1 << 20, &size.food));
  RETURN_IF_ERROR(read("height", 2, 2048, &size.height));
  RETURN_IF_ERROR(read("width", 2, 2048, &size.width));
  RETURN_IF_ERROR(read("longest", 2, 1024, &size.longest));
  const int64_t room = int64_t{size.width} * size.height / 2;
  if (int64_t{size.snakes} * size.longest + size.food > room) {
    return absl::InvalidArgumentError(
        absl::StrCat("env.options.kwargs.agents * longest + food is ",
                     int64_t{size.snakes} * size.longest + size.food,
                     ", want at most ", room, ", half of the field's cells"));
  }
  return std::unique_ptr<BatchEnvironment>(new Snake(
      environments, size, static_cast<float>(arguments.Number("reward_food")),
      static_cast<float>(arguments.Number("reward_death"))));
}

Snake::Snake(size_t environments, const SnakeField::Size& size,
             float reward_food, float reward_death)
    : agents_(static_cast<size_t>(size.snakes)),
      reward_food_(reward_food),
      reward_death_(reward_death),
      fields_(environments, SnakeField(size)),
      tally_(environments * agents_) {
  spec_.set_env_id("Snake");
  spec_.set_agents(size.snakes);
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::FLOAT32);
  observation->add_shape(SnakeField::kObserved);
  observation->add_low(-1);
  observation->add_high(1);
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(4);
  for (const char* metric : {"deaths", "food", "length"}) {
    spec_.add_episode_metric(metric);
  }
  spec_.set_max_episode_steps(1000);
}

absl::Status Snake::CheckFits(size_t environments) const {
  const SnakeField& field = fields_.front();
  const size_t most = kMaxFieldBytes / field.bytes();
  if (environments <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_envs is ", environments * agents_, ", of \"Snake\" with ",
      "env.options.kwargs.width ", field.size().width, ", height ",
      field.size().height, " and agents ", agents_, ", whose fields take ",
      field.bytes(), " bytes each; want at most ", most * agents_,
      " rows, for all to fit into ", kMaxFieldBytes,
      " bytes; have smaller fields or more workers"));
}

void Snake::Reset(size_t environment, uint64_t seed, Row observation) noexcept {
  SnakeField& field = fields_[environment];
  field.Reset(seed);
  const size_t first = environment * agents_;
  for (size_t i = 0; i < agents_; ++i) {
    tally_[first + i] = {};
    float observed[SnakeField::kObserved];
    field.Observe(static_cast<int>(i), observed);
    std::memcpy(RowOf(observation[0], first + i, kBytes).data(), observed,
                kBytes);
  }
}

void Snake::StepAll(const BatchColumns& columns) noexcept {
  for (size_t e = 0; e < fields_.size(); ++e) {
    SnakeField& field = fields_[e];
    const size_t first = e * agents_;
    for (size_t i = 0; i < agents_; ++i) {
      const size_t row = first + i;
      switch (field.Go(static_cast<int>(i),
                       ReadValue<int64_t>(columns.action[0], row))) {
        case SnakeField::Move::kWent:
          break;
        case SnakeField::Move::kAte:
          columns.reward[row] = reward_food_;
          ++tally_[row].food;
          break;
        case SnakeField::Move::kDied:
          columns.reward[row] = reward_death_;
          ++tally_[row].deaths;
          break;
      }
    }
    field.Replenish();
    std::byte* to = RowOf(columns.observation[0], first, kBytes).data();
    for (size_t i = 0; i < agents_; ++i, to += kBytes) {
      float observed[SnakeField::kObserved];
      field.Observe(static_cast<int>(i), observed);
      std::memcpy(to, observed, kBytes);
    }
  }
}

void Snake::GameOver(size_t environment, size_t agent, v1::EpisodeEnd* end) {
  const Tally& tally = tally_[environment * agents_ + agent];
  (*end->mutable_metric())["deaths"] = tally.deaths;
  (*end->mutable_metric())["food"] = tally.food;
  (*end->mutable_metric())["length"] =
      fields_[environment].length(static_cast<int>(agent));
}

v1::Frame SnakeField::Render() const {
  const int side = std::max(1, 640 / size_.width);  // of a cell, in pixels
  Picture picture(side * size_.width, side * size_.height, {20, 22, 30});
  const auto fill = [&](int x, int y, Color color) {
    picture.Rectangle({double(x) * side, double(y) * side},
                      {(x + 1.0) * side, (y + 1.0) * side}, color);
  };
  for (int y = 0; y < size_.height; ++y) {
    for (int x = 0; x < size_.width; ++x) {
      if (at(x, y) == kFood) fill(x, y, {90, 190, 100});
      if (at(x, y) == kDeadly) fill(x, y, {150, 160, 180});
    }
  }
  for (const Snake& snake : snakes_) {
    fill(snake.head % stride_ - kVision, snake.head / stride_ - kVision,
         {240, 140, 60});
  }
  return picture.frame();
}

v1::Frame Snake::Render(size_t environment) const {
  return fields_[environment].Render();
}

}  // namespace flotilla
