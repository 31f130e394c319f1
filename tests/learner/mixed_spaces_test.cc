#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/solo_collective.h"
#include "learner/nn/q_network.h"
#include "learner/rollout/rollout.h"
#include "services/base/random.h"
#include "tests/testing/status_matchers.h"

// Every kind of observation with every kind of action goes through an actor's
// rollouts, an update, a checkpoint's tensors and the next update.

namespace flotilla {
namespace {

constexpr int64_t kT = 5, kB = 4;

// One kind of leaf: what an environment says of it, and what `model` does.
struct LeafKindCase {
  std::string path, leaf, model;
};

const LeafKindCase kLeaves[] = {
    {"e", "dtype: INT64 shape: 2 num_values_each: [3, 6]",
     "encoder: EMBEDDING hidden: 3"},
    {"f", "dtype: UINT8 num_values: 5",
     "encoder: EMBEDDING hidden: [3, 4] frame_stack: 2"},
    {"i", "dtype: UINT8 shape: [36, 38] frame_stack: 2",
     "conv_channels: [4, 4, 4] hidden: 8"},
    {"m", "", ""},  // the mask of what is discrete
    {"o", "dtype: INT64 num_values: 4", ""},
    {"s", "dtype: FLOAT32 shape: 2 frame_stack: 3", "hidden: 4"},
    {"v", "dtype: FLOAT32 shape: 3", ""},
};

struct ActionKindCase {
  std::string name, actions;
  int mask;  // values of the action that is masked
};

const ActionKindCase kActions[] = {
    {"discrete", "action { dtype: INT64 num_values: 4 MASK }", 4},
    {"multi", "action { dtype: INT64 shape: 2 num_values_each: [2, 3] MASK } ",
     5},
    {"continuous", "action { dtype: FLOAT32 shape: 2 low: -1 high: 1 }", 0},
    {"mixture",
     "action { path: 'a' dtype: FLOAT32 shape: 2 } "
     "action { path: 'b' dtype: INT64 num_values: 3 MASK } "
     "action { path: 'c' dtype: UINT8 shape: 2 num_values: 2 }",
     3},
};

struct Game {
  std::string name;
  v1::EnvSpec spec;
  Spaces spaces;
  v1::RunConfig config;
};

// `leaves` are bits of kLeaves. False if there is no such game.
bool MakeGame(unsigned leaves, const ActionKindCase& action,
              const std::string& algorithm, Game* game) {
  std::string spec = action.actions, model = "hidden: 8 ";
  game->name = absl::StrCat(algorithm, ", ", action.name, ", ");
  bool masked = false, seen = false;
  for (size_t i = 0; i < std::size(kLeaves); ++i) {
    if (!(leaves >> i & 1)) continue;
    const LeafKindCase& leaf = kLeaves[i];
    absl::StrAppend(&game->name, leaf.path);
    const bool mask = leaf.path == "m";
    (mask ? masked : seen) = true;
    absl::StrAppend(
        &spec, "observation { path: '", leaf.path, "' ",
        mask ? absl::StrCat("dtype: UINT8 shape: ", action.mask) : leaf.leaf,
        " } ");
    if (leaf.model.empty()) continue;
    absl::StrAppend(&model, "leaf { path: '", leaf.path, "' ", leaf.model,
                    " } ");
  }
  if (!seen || (masked && action.mask == 0)) return false;
  if (const size_t at = spec.find("MASK"); at != spec.npos) {
    spec.replace(at, 4, masked ? "mask_path: 'm'" : "");
  }
  game->spec.Clear();
  CHECK(google::protobuf::TextFormat::ParseFromString(spec, &game->spec))
      << spec;
  CHECK(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("model { ", model, " } env { num_envs: ", kB,
                   " } rollout { length: ", kT, " } ", algorithm),
      &game->config));
  game->spaces = DescribeSpaces(game->spec, game->config.model()).value();
  return true;
}

// Environments whose observations are random, and what a collector makes of a
// policy that plays them.
class Stream {
 public:
  Stream(const Game& game, uint64_t seed)
      : game_(game), rng_(seed), draws_(seed), carried_(game.spaces, 1, kB) {}

  Rollout Collect(Policy* policy) {
    const int64_t S = policy->state_size();
    state_.resize(kB * S);
    Rollout r = MakeRollout(game_.spaces, kT, kB, /*pinned=*/false, S);
    r.valid.fill_(1);
    if (started_) r.observation.CopyStep(0, carried_, 0);
    for (int64_t t = 0; t <= kT; ++t) {
      if (t > 0) Outcome(t, policy, &r);
      if (t > 0 || !started_) See(t, &r);
      if (t == 0 && S > 0) {
        std::copy(state_.begin(), state_.end(),
                  r.initial_state.data_ptr<float>());
      }
      Decide(t, policy, &r);
    }
    started_ = true;
    carried_.CopyStep(0, r.observation, kT);
    r.valid_steps = r.valid.sum().item<int64_t>();
    return r;
  }

 private:
  // Random bytes of `rows` rows of each leaf.
  std::vector<std::string> Draw(int64_t rows) {
    std::vector<std::string> columns;
    for (const v1::Leaf& leaf : game_.spec.observation()) {
      int64_t n = 1;
      for (const int64_t d : leaf.shape()) n *= d;
      std::string column;
      for (int64_t i = 0; i < rows * n; ++i) {
        int64_t values = leaf.num_values_each_size() > 0
                             ? leaf.num_values_each(static_cast<int>(i % n))
                             : leaf.num_values();
        if (values == 0) values = leaf.path() == "m" ? 2 : 256;
        const auto value = static_cast<int64_t>(rng_.Below(values));
        const auto number = static_cast<float>(rng_.Normal());
        if (leaf.dtype() == v1::UINT8) {
          column.push_back(static_cast<char>(value));
        } else if (leaf.dtype() == v1::INT64) {
          column.append(reinterpret_cast<const char*>(&value), sizeof(value));
        } else {
          column.append(reinterpret_cast<const char*>(&number), sizeof(number));
        }
      }
      if (leaf.path() == "m") AllowSomething(n, &column);
      columns.push_back(std::move(column));
    }
    return columns;
  }

  // Of every element of the masked action.
  void AllowSomething(int64_t n, std::string* mask) {
    const auto action = std::find_if(
        game_.spec.action().begin(), game_.spec.action().end(),
        [](const v1::Leaf& leaf) { return leaf.mask_path() == "m"; });
    const int elements = std::max(1, action->num_values_each_size());
    for (size_t row = 0; row < mask->size(); row += n) {
      size_t first = row;
      for (int i = 0; i < elements; ++i) {
        const int64_t values = action->num_values_each_size() > 0
                                   ? action->num_values_each(i)
                                   : action->num_values();
        (*mask)[first + rng_.Below(values)] = 1;
        first += values;
      }
    }
  }

  void See(int64_t t, Rollout* r) {
    const std::vector<std::string> columns = Draw(kB);
    r->observation.Write(
        t, 0, kB, [&](int i) -> absl::string_view { return columns[i]; });
    if (t == 0) r->observation.Restart(t, 0, kB);
  }

  // What the step before t brought; some are lost, some end.
  void Outcome(int64_t t, Policy* policy, Rollout* r) {
    const int64_t S = policy->state_size();
    std::vector<uint8_t> ended(kB);
    for (int64_t b = 0; b < kB; ++b) {
      const uint64_t fate = rng_.Below(10);
      r->reward[t - 1][b] = rng_.Normal();
      r->terminated[t - 1][b] = fate == 0;
      r->truncated[t - 1][b] = fate == 1;
      r->valid[t - 1][b] = fate != 2;
      ended[b] = fate <= 2;
      if (fate == 1) Bootstrap(t - 1, b, policy, r);
      if (ended[b]) std::fill_n(state_.begin() + b * S, S, 0.0f);
    }
    r->observation.Continue(t, 0, kB, ended.data());
  }

  void Bootstrap(int64_t t, int64_t b, Policy* policy, Rollout* r) {
    const std::vector<std::string> columns = Draw(1);
    std::vector<uint8_t> row(r->observation.row_bytes());
    r->observation.EncodeRow(
        [&](int i) -> absl::string_view { return columns[i]; }, 0, row.data());
    r->final_step.push_back(t * kB + b);
    r->final_observation.insert(r->final_observation.end(), row.begin(),
                                row.end());
    Observations seen;
    seen.state = state_.data() + b * policy->state_size();
    r->observation.ViewFinal(t, b, row.data(), &scratch_, &seen);
    policy->Value(seen, r->bootstrap_value.data_ptr<float>() + t * kB + b);
  }

  void Decide(int64_t t, Policy* policy, Rollout* r) {
    Observations seen;
    seen.state = state_.data();
    r->observation.View(t, 0, kB, &scratch_, &seen);
    DecisionOutput out;
    out.value = r->value.data_ptr<float>() + t * kB;
    if (t == kT) return policy->Value(seen, out.value);
    out.state = state_.data();
    out.log_prob = r->log_prob.data_ptr<float>() + t * kB;
    if (r->action.discrete.defined()) {
      out.discrete = r->action.discrete[t].data_ptr<int64_t>();
    }
    if (r->action.continuous.defined()) {
      out.continuous = r->action.continuous[t].data_ptr<float>();
    }
    policy->Decide(seen, /*greedy=*/false, &draws_, out);
  }

  const Game& game_;
  Random rng_;
  Draws draws_;
  ObservationStore carried_;
  ObservationStore::Scratch scratch_;
  std::vector<float> state_;
  bool started_ = false;
};

// Choices in their range, and allowed.
void CheckActions(const Game& game, const Rollout& r) {
  const ActionSpace& space = game.spaces.action;
  EXPECT_TRUE(r.log_prob.isfinite().all().item<bool>());
  EXPECT_TRUE(r.value.isfinite().all().item<bool>());
  if (space.continuous > 0) {
    EXPECT_TRUE(r.action.continuous.isfinite().all().item<bool>());
  }
  const int64_t K = space.choices(), L = space.logits();
  if (K == 0) return;
  const int64_t* chosen = r.action.discrete.data_ptr<int64_t>();
  const uint8_t* mask =
      game.spaces.mask < 0
          ? nullptr
          : r.observation.leaf(game.spaces.mask).data_ptr<uint8_t>();
  for (int64_t i = 0; i < kT * kB; ++i) {
    int64_t first = 0;
    for (int64_t k = 0; k < K; ++k) {
      const int64_t value = chosen[i * K + k], n = space.num_values[k];
      ASSERT_TRUE(value >= 0 && value < n) << value << " of " << n;
      if (mask != nullptr) {
        ASSERT_EQ(mask[i * L + first + value], 1);
      }
      first += n;
    }
  }
}

std::vector<NamedTensor> Everything(Algorithm* algorithm) {
  std::vector<NamedTensor> all = algorithm->Weights();
  for (const NamedTensor& t : algorithm->State()) all.push_back(t);
  return all;
}

std::vector<NamedTensor> Save(Algorithm* algorithm) {
  std::vector<NamedTensor> all = Everything(algorithm);
  for (NamedTensor& t : all) t.tensor = t.tensor.clone();
  return all;
}

void Restore(const std::vector<NamedTensor>& saved, Algorithm* algorithm) {
  torch::NoGradGuard no_grad;
  const std::vector<NamedTensor> live = Everything(algorithm);
  ASSERT_EQ(live.size(), saved.size());
  for (size_t i = 0; i < live.size(); ++i) {
    ASSERT_EQ(live[i].name, saved[i].name);
    live[i].tensor.copy_(saved[i].tensor);
  }
  algorithm->StateWasReplaced();
}

// What `policy` would do about a rollout's first step.
std::vector<float> Decisions(Policy* policy, const Game& game,
                             const Rollout& r) {
  std::vector<float> log_prob(kB), value(kB), state(kB * policy->state_size());
  const Actions action = MakeActions(game.spaces.action, {kB});
  ObservationStore::Scratch scratch;
  Observations seen;
  seen.state = state.data();
  r.observation.View(0, 0, kB, &scratch, &seen);
  DecisionOutput out;
  out.log_prob = log_prob.data();
  out.value = value.data();
  out.state = state.data();
  std::vector<float> all;
  if (action.discrete.defined()) {
    out.discrete = action.discrete.data_ptr<int64_t>();
  }
  if (action.continuous.defined()) {
    out.continuous = action.continuous.data_ptr<float>();
  }
  Draws draws(3);
  policy->Decide(seen, /*greedy=*/false, &draws, out);
  for (const auto* numbers : {&log_prob, &value, &state}) {
    all.insert(all.end(), numbers->begin(), numbers->end());
  }
  action.Map([&](const torch::Tensor& t) {
    const torch::Tensor f = t.to(torch::kFloat32);
    all.insert(all.end(), f.data_ptr<float>(), f.data_ptr<float>() + f.numel());
    return t;
  });
  return all;
}

double MetricOf(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& m : metrics) {
    if (m.name == name) return m.value;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// Two updates, a checkpoint's tensors, and the same third update by who went on
// and by who was restored.
void Play(const Game& game) {
  SCOPED_TRACE(game.name);
  SoloCollective alone;
  const bool dqn = game.config.has_dqn();
  auto algorithm = MakeAlgorithm(game.config, game.spaces, torch::kCPU).value();
  Stream stream(game, /*seed=*/1);
  const std::vector<NamedTensor> fresh = Save(algorithm.get());
  std::vector<Rollout> rollouts;
  for (int64_t u = 0; u < 2; ++u) {
    algorithm->BeforeCollecting(u);
    rollouts.push_back(stream.Collect(algorithm->live_policy()));
    CheckActions(game, rollouts.back());
    const auto metrics =
        algorithm->Update(rollouts.back(), {u, (u + 1) * kT * kB, &alone});
    ASSERT_OK(metrics);
    for (const Metric& m : *metrics) {
      EXPECT_TRUE(std::isfinite(m.value)) << m.name;
    }
    // One gradient step: it scores what the actor did as the actor did.
    if (!dqn) {
      EXPECT_LT(std::abs(MetricOf(*metrics, "losses/approx_kl")), 1e-5);
    }
  }
  for (size_t i = 0; i < algorithm->Weights().size(); ++i) {
    EXPECT_FALSE(torch::equal(algorithm->Weights()[i].tensor, fresh[i].tensor))
        << fresh[i].name << " has not learned";
  }

  const std::vector<NamedTensor> saved = Save(algorithm.get());
  const std::unique_ptr<Policy> frozen = algorithm->Freeze();
  algorithm->BeforeCollecting(2);
  const Rollout last = stream.Collect(algorithm->live_policy());

  auto other = MakeAlgorithm(game.config, game.spaces, torch::kCPU).value();
  // A replay is no part of what is saved: it sees the same, and learns nothing.
  for (int64_t u = 0; dqn && u < 2; ++u) {
    ASSERT_OK(other->Update(rollouts[u], {u, /*global_step=*/0, &alone}));
  }
  Restore(saved, other.get());
  other->BeforeCollecting(2);
  const std::vector<float> decided =
      Decisions(algorithm->live_policy(), game, last);
  EXPECT_EQ(Decisions(other->live_policy(), game, last), decided);
  if (!dqn) {
    EXPECT_EQ(Decisions(frozen.get(), game, last), decided);
  }
  for (Algorithm* a : {algorithm.get(), other.get()}) {
    ASSERT_OK(a->Update(last, {2, 3 * kT * kB, &alone}));
  }
  const std::vector<NamedTensor> want = Everything(algorithm.get()),
                                 got = Everything(other.get());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(torch::equal(want[i].tensor, got[i].tensor)) << want[i].name;
  }
}

void PlayAll(const std::string& algorithm, const std::string& recurrent) {
  int games = 0;
  for (unsigned leaves = 1; leaves < 1u << std::size(kLeaves); ++leaves) {
    if (__builtin_popcount(leaves) > 3) continue;
    for (const ActionKindCase& action : kActions) {
      Game game;
      if (!MakeGame(leaves, action, algorithm, &game)) continue;
      if (game.config.has_dqn() && game.spaces.action.continuous > 0) {
        EXPECT_THAT(MakeAlgorithm(game.config, game.spaces, torch::kCPU),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             testing::HasSubstr("dqn needs discrete actions")));
        continue;
      }
      // Some remember.
      if (!recurrent.empty() && games % 5 == 0) {
        v1::RecurrentCell cell = v1::NONE;
        ASSERT_TRUE(v1::RecurrentCell_Parse(recurrent, &cell));
        game.config.mutable_model()->set_recurrent(cell);
        game.config.mutable_model()->set_recurrent_size(6);
        absl::StrAppend(&game.name, ", ", recurrent);
      }
      Play(game);
      if (testing::Test::HasFatalFailure()) return;
      ++games;
    }
  }
  EXPECT_GE(games, algorithm.substr(0, 3) == "dqn" ? 124 : 220);
}

constexpr char kDqn[] =
    "dqn { learning_starts: 1 batch_size: 12 replay_capacity: 64 n_step: 2 "
    "      updates_per_rollout: 2 target_update_every: 3 priority_alpha: 0 }";

TEST(MixedSpacesTest, PpoLearnsFromAndForEverything) {
  PlayAll("ppo { epochs: 1 minibatches: 1 }", "LSTM");
}

TEST(MixedSpacesTest, ImpalaLearnsFromAndForEverything) {
  PlayAll("impala { epochs: 1 minibatches: 1 }", "GRU");
}

TEST(MixedSpacesTest, DqnLearnsFromAndForEverything) { PlayAll(kDqn, ""); }

TEST(MixedSpacesTest, DqnLearnsByKernels) {
  for (const std::string leaves : {"v", "mv"}) {
    unsigned bits = 0;
    for (size_t i = 0; i < std::size(kLeaves); ++i) {
      bits |= unsigned{leaves.find(kLeaves[i].path) != leaves.npos} << i;
    }
    Game game;
    ASSERT_TRUE(MakeGame(bits, kActions[0], kDqn, &game));
    v1::ModelConfig* model = game.config.mutable_model();
    model->set_activation(v1::RELU);
    ASSERT_TRUE(
        QNetwork::Make(game.spaces, *model, /*dueling=*/false, torch::kCPU)
            ->KernelShape()
            .has_value());
    Play(game);
  }
}

}  // namespace
}  // namespace flotilla
