#include "learner/replay/replay_buffer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "services/base/random.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 3, kLength = 5;
constexpr double kGamma = 0.9;

// An observation, as the numbers of the frames it shows, oldest first.
using Stack = std::vector<int32_t>;

// Four bytes of pixels: a frame is its number.
Spaces TinyFrames() { return FrameSpaces(2, 2, /*actions=*/4); }

void AddFinal(const std::string& wire, Rollout* r) {
  const int64_t bytes = r->observation.row_bytes();
  const size_t before = r->final_observation.size();
  r->final_observation.resize(before + bytes);
  r->observation.EncodeRow([&](int) -> absl::string_view { return wire; },
                           /*row=*/0, r->final_observation.data() + before);
}

// B environments that show each frame number once, and all that ever happened
// to them. Rollouts come out as the collector makes them.
class History {
 public:
  struct Step {
    Stack seen;
    Stack final_seen;  // after it, where a time limit ended the episode
    int64_t action = 0;
    float reward = 0;
    bool valid = false, terminated = false, truncated = false;
  };

  History(const Spaces& spaces, uint64_t seed)
      : spaces_(spaces), rng_(seed), episode_(kRows), steps_(kRows) {
    for (int64_t b = 0; b < kRows; ++b) Reset(b);
  }

  // The next `length` steps. `quiet`: nothing ends and nothing is lost.
  Rollout Collect(int64_t length = kLength, bool quiet = false) {
    Rollout r = MakeRollout(spaces_, length, kRows, /*pinned=*/false);
    for (int64_t t = 0; t <= length; ++t) {
      for (int64_t b = 0; b < kRows; ++b) {
        Show(b, t, &r);
        if (t < length) Advance(b, t, quiet, &r);
      }
    }
    r.valid_steps = r.valid.sum().item<int64_t>();
    return r;
  }

  // Rows play on, but nobody hears of it: what a failed collection leaves.
  void Lose(int64_t b) {
    Reset(b);
    if (!steps_[b].empty() && !Ended(steps_[b].back())) {
      steps_[b].back().valid = false;
    }
  }

  static bool Ended(const Step& s) { return s.terminated || s.truncated; }

  const Step& At(int64_t b, int64_t step) const { return steps_[b][step]; }
  int64_t count() const { return steps_[0].size(); }
  // What row b sees at `step`, up to the newest observation.
  Stack SeenAt(int64_t b, int64_t step) const {
    return step < count() ? steps_[b][step].seen : Seen(b);
  }

 private:
  Stack Newest(const std::vector<int32_t>& frames) const {
    Stack seen;
    for (int64_t back = spaces_.max_stack() - 1; back >= 0; --back) {
      const int64_t newest = frames.size() - 1;
      seen.push_back(frames[std::max<int64_t>(0, newest - back)]);
    }
    return seen;
  }
  Stack Seen(int64_t b) const { return Newest(episode_[b]); }

  void Reset(int64_t b) { episode_[b] = {next_frame_++}; }

  void Show(int64_t b, int64_t t, Rollout* r) const {
    const std::string wire = Wire(episode_[b].back());
    r->observation.Write(t, b, 1,
                         [&](int) -> absl::string_view { return wire; });
    r->observation.age()[t][b] = static_cast<uint8_t>(
        std::min<int64_t>(episode_[b].size() - 1, spaces_.max_stack() - 1));
  }

  void Advance(int64_t b, int64_t t, bool quiet, Rollout* r) {
    Step s;
    s.seen = Seen(b);
    s.action = rng_.Below(spaces_.action.num_values[0]);
    s.reward = static_cast<float>(rng_.Uniform(-1, 1));
    const double chance = quiet ? 1 : rng_.Uniform();
    s.terminated = chance < 0.1;
    s.truncated = !s.terminated && chance < 0.2;
    s.valid = chance > 0.3 || Ended(s);
    if (s.truncated) {
      std::vector<int32_t> frames = episode_[b];
      frames.push_back(next_frame_++);
      s.final_seen = Newest(frames);
      r->final_step.push_back(t * kRows + b);
      AppendFinal(frames.back(), r);
    }
    if (Ended(s) || !s.valid) {
      Reset(b);
    } else {
      episode_[b].push_back(next_frame_++);
    }
    r->action.discrete[t][b] = s.action;
    r->reward[t][b] = s.reward;
    r->terminated[t][b] = s.terminated;
    r->truncated[t][b] = s.truncated;
    r->valid[t][b] = s.valid;
    steps_[b].push_back(s);
  }

  void AppendFinal(int32_t frame, Rollout* r) const {
    AddFinal(Wire(frame), r);
  }

  // As an environment sends it.
  std::string Wire(int32_t frame) const {
    const float number = static_cast<float>(frame);
    return {HasFrames(spaces_) ? reinterpret_cast<const char*>(&frame)
                               : reinterpret_cast<const char*>(&number),
            4};
  }

  const Spaces spaces_;
  Random rng_;
  int32_t next_frame_ = 1;
  std::vector<std::vector<int32_t>> episode_;  // [B] frames since the reset
  std::vector<std::vector<Step>> steps_;       // [B][count]
};

// An n-step transition worked out the slow way.
struct Expected {
  int64_t action = 0;
  double n_step_return = 0;
  double discount = 0;
  Stack next;  // empty: a termination
};

// nullopt while the window is open or `start` is not to be drawn.
std::optional<Expected> Window(const History& h, int64_t b, int64_t start,
                               int n) {
  if (!h.At(b, start).valid) return std::nullopt;
  Expected e;
  e.action = h.At(b, start).action;
  for (int k = 0; k < n; ++k) {
    const int64_t step = start + k;
    if (step == h.count()) return std::nullopt;
    const History::Step& s = h.At(b, step);
    if (!s.valid) {  // never the first
      e.discount = std::pow(kGamma, k);
      e.next = s.seen;
      return e;
    }
    e.n_step_return += std::pow(kGamma, k) * s.reward;
    if (s.terminated) return e;
    if (s.truncated) {
      e.discount = std::pow(kGamma, k + 1);
      e.next = s.final_seen;
      return e;
    }
  }
  e.discount = std::pow(kGamma, n);
  e.next = h.SeenAt(b, start + n);
  return e;
}

ReplayBuffer::Options OptionsOf(int n, int64_t capacity) {
  return {.capacity = capacity, .n_step = n, .discount = kGamma};
}

Stack Shown(const Spaces& spaces, const torch::Tensor& observation) {
  Stack shown(spaces.max_stack());
  if (HasFrames(spaces)) {
    std::memcpy(shown.data(), observation.data_ptr(), 4 * shown.size());
  } else {
    shown[0] = static_cast<int32_t>(observation.item<float>());
  }
  return shown;
}

// Draws often, compares every draw with the slow loop, and expects that
// everything that may be drawn was.
void ExpectTheSlowLoops(const Spaces& spaces, const History& h,
                        const ReplayBuffer& replay, int n, int64_t capacity) {
  std::map<Stack, Expected> drawable;
  for (int64_t b = 0; b < kRows; ++b) {
    for (int64_t start = std::max<int64_t>(0, h.count() - capacity / kRows);
         start < h.count(); ++start) {
      if (auto e = Window(h, b, start, n)) drawable[h.At(b, start).seen] = *e;
    }
  }
  Draws source(7);
  ReplayBatch batch;
  std::set<Stack> drawn;
  const int64_t draws = 30 * drawable.size();
  ASSERT_EQ(replay.Sample(draws, 1, &source, &batch), !drawable.empty());
  for (int64_t i = 0; i < draws; ++i) {
    const Stack seen = Shown(spaces, batch.observation.leaf[0][i]);
    const auto want = drawable.find(seen);
    ASSERT_NE(want, drawable.end()) << "frame " << seen.back();
    drawn.insert(seen);
    const Expected& e = want->second;
    ASSERT_EQ(batch.action.discrete[i].item<int64_t>(), e.action);
    ASSERT_NEAR(batch.n_step_return[i].item<double>(), e.n_step_return, 1e-6);
    ASSERT_NEAR(batch.discount[i].item<double>(), e.discount, 1e-7);
    ASSERT_EQ(batch.weight[i].item<float>(), 1);
    if (!e.next.empty()) {
      ASSERT_EQ(Shown(spaces, batch.next_observation.leaf[0][i]), e.next)
          << "after frame " << seen.back();
    }
  }
  EXPECT_EQ(drawn.size(), drawable.size());
}

struct Case {
  bool frames;
  int n;
};

class ReplayTest : public testing::TestWithParam<Case> {
 protected:
  Spaces spaces() const {
    return GetParam().frames ? TinyFrames() : VectorSpaces(1, 4);
  }
};

// Over several turns of the ring, with every kind of end, lost transitions, and
// windows that go on from one rollout to the next.
TEST_P(ReplayTest, EveryDrawIsTheSlowLoops) {
  const int64_t capacity = 8 * kRows;
  History h(spaces(), 3);
  ReplayBuffer replay(spaces(), kRows, OptionsOf(GetParam().n, capacity));
  for (int i = 0; i < 12; ++i) {
    replay.Add(h.Collect());
    ExpectTheSlowLoops(spaces(), h, replay, GetParam().n, capacity);
    if (HasFatalFailure()) FAIL() << "rollout " << i;
    EXPECT_EQ(replay.size(), std::min(capacity, h.count() * kRows));
  }
}

// After a failed collection a row is elsewhere, perhaps in another episode.
TEST_P(ReplayTest, NothingIsSplicedAfterAFailedCollection) {
  const int64_t capacity = 100 * kRows;
  History h(spaces(), 4);
  ReplayBuffer replay(spaces(), kRows, OptionsOf(GetParam().n, capacity));
  for (int i = 0; i < 8; ++i) {
    if (i % 2) h.Lose(i % kRows);
    replay.Add(h.Collect());
  }
  ExpectTheSlowLoops(spaces(), h, replay, GetParam().n, capacity);
}

// A straggler's rollout ends short; its last observation opens the next one.
TEST_P(ReplayTest, WindowsGoOnAfterAShortRollout) {
  const int64_t capacity = 100 * kRows;
  History h(spaces(), 4);
  ReplayBuffer replay(spaces(), kRows, OptionsOf(GetParam().n, capacity));
  for (int i = 0; i < 8; ++i) {
    const Rollout brief = h.Collect(2, /*quiet=*/i % 2 == 0);
    Rollout r = MakeRollout(spaces(), kLength, kRows, /*pinned=*/false);
    for (int64_t t = 0; t <= 2; ++t) {
      r.observation.CopyStep(t, brief.observation, t);
    }
    r.action.discrete.narrow(0, 0, 2).copy_(brief.action.discrete);
    for (auto [to, from] : {std::pair{&r.reward, &brief.reward},
                            {&r.terminated, &brief.terminated},
                            {&r.truncated, &brief.truncated},
                            {&r.valid, &brief.valid}}) {
      to->narrow(0, 0, 2).copy_(*from);
    }
    r.final_step = brief.final_step;
    r.final_observation = brief.final_observation;
    replay.Add(r);
  }
  ExpectTheSlowLoops(spaces(), h, replay, GetParam().n, capacity);
}

// As agents that take turns come to them.
TEST_P(ReplayTest, FinalObservationsComeInAnyOrder) {
  const int64_t capacity = 100 * kRows;
  History h(spaces(), 3);
  ReplayBuffer replay(spaces(), kRows, OptionsOf(GetParam().n, capacity));
  size_t most = 0;
  for (int i = 0; i < 12; ++i) {
    Rollout r = h.Collect();
    const int64_t bytes = r.observation.row_bytes();
    const std::vector<uint8_t> rows = std::exchange(r.final_observation, {});
    const size_t finals = r.final_step.size();
    most = std::max(most, finals);
    std::reverse(r.final_step.begin(), r.final_step.end());
    for (size_t f = finals; f-- > 0;) {
      const auto row = rows.begin() + static_cast<int64_t>(f) * bytes;
      r.final_observation.insert(r.final_observation.end(), row, row + bytes);
    }
    replay.Add(r);
  }
  EXPECT_GT(most, 1);
  ExpectTheSlowLoops(spaces(), h, replay, GetParam().n, capacity);
}

void ExpectTheSameDraws(const ReplayBuffer& first, const ReplayBuffer& second) {
  EXPECT_EQ(first.size(), second.size());
  Draws draws(9), again(9);
  ReplayBatch a;  // whose memory is filled again
  for (const int64_t n : {64, 64, 32}) {
    ReplayBatch b;
    ASSERT_EQ(first.Sample(n, 0.7, &draws, &a),
              second.Sample(n, 0.7, &again, &b));
    if (!a.id.defined()) return;
    EXPECT_TRUE(torch::equal(a.id, b.id));
    EXPECT_TRUE(torch::equal(a.observation.leaf[0], b.observation.leaf[0]));
    EXPECT_TRUE(
        torch::equal(a.next_observation.leaf[0], b.next_observation.leaf[0]));
    EXPECT_TRUE(torch::equal(a.action.discrete, b.action.discrete));
    EXPECT_TRUE(torch::equal(a.n_step_return, b.n_step_return));
    EXPECT_TRUE(torch::equal(a.discount, b.discount));
    EXPECT_TRUE(torch::equal(a.weight, b.weight));
  }
}

void SetSomeErrors(ReplayBuffer* replay) {
  Draws draws(2);
  ReplayBatch batch;
  if (!replay->Sample(20, 1, &draws, &batch)) return;
  const torch::Tensor errors = torch::empty({20});
  for (int i = 0; i < 20; ++i) errors[i] = 6 * draws.Uniform() - 3;
  replay->SetErrors(batch.id, errors);
}

// At any place of the ring, and with priorities: it draws the same, also when
// both have seen more, of environments that began anew.
TEST_P(ReplayTest, RestoredItDrawsTheSame) {
  ReplayBuffer::Options options = OptionsOf(GetParam().n, 8 * kRows);
  options.priority_alpha = 0.6;
  for (const int rollouts : {0, 1, 2, 7}) {
    SCOPED_TRACE(rollouts);
    History h(spaces(), 3);
    ReplayBuffer first(spaces(), kRows, options);
    for (int i = 0; i < rollouts; ++i) {
      first.Add(h.Collect());
      SetSomeErrors(&first);
    }
    ReplayBuffer second(spaces(), kRows, options);
    const absl::Status restored = second.Restore(first.Copy());
    ASSERT_TRUE(restored.ok()) << restored;
    ExpectTheSameDraws(first, second);
    for (int64_t b = 0; b < kRows; ++b) h.Lose(b);
    for (int i = 0; i < 3; ++i) {
      const Rollout next = h.Collect();
      first.Add(next);
      second.Add(next);
      SetSomeErrors(&first);
      SetSomeErrors(&second);
      ExpectTheSameDraws(first, second);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(VectorsAndFrames, ReplayTest,
                         testing::Values(Case{false, 1}, Case{false, 3},
                                         Case{false, 7}, Case{true, 1},
                                         Case{true, 3}));

// gamma^k for k summed rewards, by hand: DI-engine has gamma^(k - 1) at a
// truncated end.
TEST(ReplayBufferTest, DiscountIsGammaToTheNumberOfRewards) {
  const Spaces spaces = VectorSpaces(1, 2);
  ReplayBuffer replay(spaces, 1, OptionsOf(3, 100));
  Rollout r = MakeRollout(spaces, 6, 1, false);
  r.observation.leaf(0).copy_(torch::arange(7).reshape({7, 1, 1}));
  r.reward.fill_(1);
  r.valid.fill_(1);
  r.truncated[4][0] = 1;
  const float final_observation = 99;
  r.final_step = {4};
  AddFinal({reinterpret_cast<const char*>(&final_observation), 4}, &r);
  replay.Add(r);
  Draws draws(1);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(200, 1, &draws, &batch));
  const double returns[] = {2.71, 2.71, 2.71, 1.9, 1};
  const double discounts[] = {0.729, 0.729, 0.729, 0.81, 0.9};
  const float next[] = {3, 4, 99, 99, 99};
  std::set<int> starts;
  for (int i = 0; i < 200; ++i) {
    const int start = batch.observation.leaf[0][i].item<int>();
    starts.insert(start);
    ASSERT_LE(start, 4);  // the window of 5 is open
    EXPECT_NEAR(batch.n_step_return[i].item<double>(), returns[start], 1e-6);
    EXPECT_NEAR(batch.discount[i].item<double>(), discounts[start], 1e-7);
    EXPECT_EQ(batch.next_observation.leaf[0][i].item<float>(), next[start]);
  }
  EXPECT_EQ(starts.size(), 5);
}

// That leads to what was seen before the failure, not to what opens the next rollout.
TEST(ReplayBufferTest, ALastStepThatEveryRowLostCostsNoOther) {
  const Spaces spaces = VectorSpaces(1, 2);
  ReplayBuffer replay(spaces, 1, OptionsOf(1, 100));
  Rollout r = MakeRollout(spaces, 4, 1, false);
  r.observation.leaf(0).copy_(torch::arange(5).reshape({5, 1, 1}));
  r.valid.narrow(0, 0, 2).fill_(1);
  r.played = 4;  // two that were lost
  replay.Add(r);
  r.observation.leaf(0).add_(10);
  r.played = 2;  // two that pad it
  replay.Add(r);
  r.observation.leaf(0).add_(2);
  replay.Add(r);
  EXPECT_EQ(replay.size(), 3 + 2 + 2);
  Draws draws(1);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(200, 1, &draws, &batch));
  std::map<float, float> next;
  for (int i = 0; i < 200; ++i) {
    next[batch.observation.leaf[0][i].item<float>()] =
        batch.next_observation.leaf[0][i].item<float>();
  }
  EXPECT_EQ(next, (std::map<float, float>{
                      {0, 1}, {1, 2}, {10, 11}, {11, 12}, {12, 13}, {13, 14}}));
}

// What seems to go on does not: other environments may look alike.
TEST(ReplayBufferTest, RestoredItCutsWhatWasOpen) {
  const Spaces spaces = VectorSpaces(1, 4);
  History h(spaces, 3);
  ReplayBuffer first(spaces, kRows, OptionsOf(3, 300));
  first.Add(h.Collect(kLength, /*quiet=*/true));
  ReplayBuffer second(spaces, kRows, OptionsOf(3, 300));
  ASSERT_TRUE(second.Restore(first.Copy()).ok());
  const Rollout next = h.Collect(kLength, /*quiet=*/true);
  first.Add(next);
  second.Add(next);
  const auto lost = [](const ReplayBuffer& replay) {
    return (replay.Copy().at("end")[kLength - 1] == 0).sum().item<int64_t>();
  };
  EXPECT_EQ(lost(first), 0);
  EXPECT_EQ(lost(second), kRows);
}

TEST(ReplayBufferTest, WhatIsNoReplayOfTheseSizesIsRefusedByName) {
  const Spaces spaces = VectorSpaces(1, 4);
  const ReplayBuffer::Options options = OptionsOf(3, 300);
  History h(spaces, 3);
  ReplayBuffer first(spaces, kRows, options);
  for (int i = 0; i < 4; ++i) first.Add(h.Collect());
  const ReplayBuffer::Contents good = first.Copy();

  const auto expect = [&](const ReplayBuffer::Contents& contents,
                          const Spaces& here, int64_t rows,
                          const ReplayBuffer::Options& its,
                          const std::string& words) {
    ReplayBuffer other(here, rows, its);
    const absl::Status status = other.Restore(contents);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(words), std::string::npos)
        << status << ", want " << words;
    EXPECT_EQ(other.size(), 0);
  };
  expect(good, spaces, kRows, OptionsOf(3, 600),
         "capacity is 100, and here 200");
  expect(good, spaces, kRows, OptionsOf(2, 300), "n_step is 3, and here 2");
  ReplayBuffer::Options prioritised = options;
  prioritised.priority_alpha = 0.5;
  expect(good, spaces, kRows, prioritised, "priority_alpha is 0, and here 0.5");
  expect(good, spaces, 6, OptionsOf(3, 600), "env.num_envs) is 3, and here 6");
  expect(good, VectorSpaces(2, 4), kRows, options, "observation.0 is Float");
  expect(good, VectorSpaces(1, 2), kRows, options, "\"discrete\"");
  expect({}, spaces, kRows, options, "sizes is missing");

  const auto spoilt = [&](const std::string& name, double value) {
    ReplayBuffer::Contents contents = good;
    contents[name] = contents[name].clone();
    contents[name].view(-1)[0] = value;
    return contents;
  };
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, double>>{{"discrete", 4},
                                                   {"discrete", -1},
                                                   {"age", 200},
                                                   {"open", 9},
                                                   {"open", -1},
                                                   {"priority", -1},
                                                   {"priority", INFINITY},
                                                   {"reward", NAN},
                                                   {"final_leaf", -1},
                                                   {"final_leaf", 1e6}}) {
    expect(spoilt(name, value), spaces, kRows, options,
           "tensor \"" + name + "\" holds what no replay does");
  }
  // A time limit without its final observation.
  ReplayBuffer::Contents contents = good;
  ASSERT_GT(contents["final_leaf"].numel(), 0);
  contents["final_leaf"] = torch::empty({0}, torch::kInt64);
  contents["final_row"] = contents["final_row"].narrow(0, 0, 0).contiguous();
  expect(contents, spaces, kRows, options, "tensor \"end\"");
}

TEST(ReplayBufferTest, TheSameSeedDrawsTheSame) {
  const Spaces spaces = VectorSpaces(1, 4);
  const auto draw = [&](uint64_t seed) {
    History h(spaces, 1);
    ReplayBuffer replay(spaces, kRows, OptionsOf(3, 300));
    for (int i = 0; i < 10; ++i) replay.Add(h.Collect());
    Draws draws(seed);
    ReplayBatch batch;
    EXPECT_TRUE(replay.Sample(64, 1, &draws, &batch));
    EXPECT_EQ(draws.place(), 64u);
    return batch.observation.leaf[0];
  };
  EXPECT_TRUE(torch::equal(draw(1), draw(1)));
  EXPECT_FALSE(torch::equal(draw(1), draw(2)));
}

std::span<const int32_t> Ids(const ReplayBatch& batch) {
  return {batch.id.data_ptr<int32_t>(), static_cast<size_t>(batch.id.numel())};
}

// How often each start was drawn, against its share by a chi-square test.
void ExpectShares(const ReplayBuffer& replay,
                  const std::map<int64_t, double>& share) {
  const int draws = 20000;
  Draws source(5);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(draws, 1, &source, &batch));
  std::map<int64_t, int> drawn;
  for (const int32_t id : Ids(batch)) ++drawn[id];
  double square = 0;
  for (const auto& [id, p] : share) {
    square += std::pow(drawn[id] - draws * p, 2) / (draws * p);
  }
  EXPECT_EQ(drawn.size(), share.size());
  // Mean f, deviation sqrt(2 f): five deviations.
  const double f = static_cast<double>(share.size()) - 1;
  EXPECT_LT(square, f + 5 * std::sqrt(2 * f));
}

TEST(ReplayBufferTest, WithoutPrioritiesDrawsAreUniform) {
  const Spaces spaces = VectorSpaces(1, 4);
  History h(spaces, 1);
  ReplayBuffer replay(spaces, kRows, OptionsOf(1, 300));
  for (int i = 0; i < 8; ++i) replay.Add(h.Collect(kLength, /*quiet=*/true));
  std::map<int64_t, double> share;
  for (int64_t id = 0; id < 40 * kRows; ++id) share[id] = 1.0 / (40 * kRows);
  replay.SetErrors(torch::arange(2, torch::kInt32), torch::full({2}, 100.0f));
  ExpectShares(replay, share);
}

// Schaul et al. 2016, eq. 1 and section 3.4.
TEST(ReplayBufferTest, PrioritisedDrawsAndWeights) {
  const Spaces spaces = VectorSpaces(1, 4);
  History h(spaces, 1);
  ReplayBuffer::Options options = OptionsOf(1, 300);
  options.priority_alpha = 0.6;
  ReplayBuffer replay(spaces, kRows, options);
  for (int i = 0; i < 4; ++i) replay.Add(h.Collect(kLength, /*quiet=*/true));
  const int64_t N = 20 * kRows;
  std::vector<float> errors(N);
  std::map<int64_t, double> share;
  double total = 0;
  for (int64_t i = 0; i < N; ++i) {
    errors[i] = static_cast<float>((i % 7 + 1) * (i % 2 ? -0.3 : 0.3));
    share[i] = std::pow(std::abs(errors[i]), 0.6);
    total += share[i];
  }
  replay.SetErrors(torch::arange(N, torch::kInt32), torch::tensor(errors));
  double largest_weight = 0;
  for (auto& [id, p] : share) {
    p /= total;
    largest_weight = std::max(largest_weight, std::pow(N * p, -0.4));
  }
  ExpectShares(replay, share);
  Draws draws(2);
  ReplayBatch batch;
  ASSERT_TRUE(replay.Sample(500, 0.4, &draws, &batch));
  for (int i = 0; i < 500; ++i) {
    EXPECT_NEAR(batch.weight[i].item<double>(),
                std::pow(N * share[Ids(batch)[i]], -0.4) / largest_weight,
                1e-5);
  }
  // What comes in is drawn like the most surprising so far.
  replay.Add(h.Collect(kLength, /*quiet=*/true));
  const double newest = std::pow(7 * 0.3, 0.6);
  for (auto& [id, p] : share)
    p = p * total / (total + kLength * kRows * newest);
  for (int64_t id = N; id < N + kLength * kRows; ++id) {
    share[id] = newest / (total + kLength * kRows * newest);
  }
  ExpectShares(replay, share);
}

// Of one that comes twice.
TEST(ReplayBufferTest, TheLastErrorCounts) {
  const Spaces spaces = VectorSpaces(1, 4);
  History h(spaces, 1);
  ReplayBuffer::Options options = OptionsOf(1, 300);
  options.priority_alpha = 0.6;
  ReplayBuffer replay(spaces, kRows, options);
  replay.Add(h.Collect(kLength, /*quiet=*/true));
  replay.SetErrors(torch::tensor({2, 4, 2}, torch::kInt32),
                   torch::tensor({9.0f, 3.0f, 0.5f}));
  const ReplayBuffer::Contents contents = replay.Copy();
  const torch::Tensor priority = contents.at("priority").flatten();
  EXPECT_NEAR(priority[2].item<double>(), std::pow(0.5, 0.6), 1e-5);
  EXPECT_NEAR(priority[4].item<double>(), std::pow(3, 0.6), 1e-5);
  EXPECT_EQ(priority[1].item<double>(), 1);
  // What was the largest stays it.
  EXPECT_NEAR(contents.at("numbers")[1].item<double>(), std::pow(9, 0.6), 1e-5);
}

TEST(ReplayBufferTest, NothingIsDrawnBeforeAWindowIsClosed) {
  const Spaces spaces = VectorSpaces(1, 4);
  History h(spaces, 1);
  ReplayBuffer replay(spaces, kRows, OptionsOf(3, 300));
  Draws draws(5);
  ReplayBatch batch;
  EXPECT_FALSE(replay.Sample(4, 1, &draws, &batch));
  replay.Add(h.Collect(2, /*quiet=*/true));
  EXPECT_FALSE(replay.Sample(4, 1, &draws, &batch));
  EXPECT_EQ(draws.place(), 0u);
  replay.Add(h.Collect(1, /*quiet=*/true));
  EXPECT_TRUE(replay.Sample(4, 1, &draws, &batch));
}

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Kept four times over, stacks would need 2.8 GB.
TEST(ReplayBufferTest, AHundredThousandAtariTransitionsTakeLessThan800MB) {
  const Spaces spaces = AtariSpaces(6);
  const int64_t B = 8, T = 250;
  const int64_t before = ResidentBytes();
  ReplayBuffer replay(spaces, B, OptionsOf(3, 100000));
  Rollout r = MakeRollout(spaces, T, B, false);
  r.valid.fill_(1);
  while (replay.size() < 100000) replay.Add(r);
  replay.Add(r);
  const int64_t grown = ResidentBytes() - before;
  RecordProperty("resident_bytes", std::to_string(grown));
  EXPECT_LT(grown, 800'000'000);
  EXPECT_GT(grown, 100000 * 84 * 84);  // it was really filled
  EXPECT_LT(replay.bytes(), 800'000'000);
}

}  // namespace
}  // namespace flotilla
