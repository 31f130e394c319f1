#include "learner/eval/decisions.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "learner/actor/action_columns.h"
#include "learner/actor/env_pool.h"
#include "learner/device/host.h"
#include "learner/rollout/observation_store.h"
#include "services/base/status_macros.h"
#include "services/env/agents.h"

namespace flotilla {
namespace {

// Apart from the workers of training and of evaluations.
constexpr uint64_t kDecisionWorker = uint64_t{1} << 41;
constexpr int kRows = 8;

// One column of the record, row after row of it.
template <typename T>
class Column {
 public:
  Column(int64_t width, torch::Dtype dtype) : width_(width), dtype_(dtype) {}
  void Add(const T* row) { all_.insert(all_.end(), row, row + width_); }
  int64_t width() const { return width_; }
  torch::Tensor Tensor(std::vector<int64_t> shape) {
    return torch::from_blob(all_.data(), shape, dtype_).clone();
  }

 private:
  const int64_t width_;
  const torch::Dtype dtype_;
  std::vector<T> all_;
};

int64_t RowBytes(const v1::Leaf& leaf) {
  int64_t bytes = leaf.dtype() == v1::UINT8   ? 1
                  : leaf.dtype() == v1::INT64 ? 8
                                              : 4;
  for (const int64_t d : leaf.shape()) bytes *= d;
  return bytes;
}

// Plays all rows of a pool of one slot, each in a time of its own: slots of
// several agents need not decide together.
class Player {
 public:
  Player(EnvPool* pool, const TrainedEnv& trained, Policy* policy,
         const Normalizer& normalizer, int64_t count)
      : pool_(pool),
        trained_(trained),
        policy_(policy),
        normalizer_(normalizer),
        count_(count),
        rows_(pool->rows_per_slot()),
        seen_(trained.spaces, trained.spaces.max_stack() + 1, rows_,
              /*pinned=*/false, ObservationStore::Form::kRing),
        columns_(trained.spaces.action),
        at_(rows_, 0),
        fresh_(rows_, true),
        state_(rows_ * policy->state_size(), 0.0f),
        begins_(1, torch::kUInt8),
        row_(1, torch::kInt64),
        discrete_(trained.spaces.action.choices(), torch::kInt64),
        continuous_(trained.spaces.action.continuous, torch::kFloat32),
        value_(1, torch::kFloat32),
        states_(policy->state_size(), torch::kFloat32),
        all_discrete_(rows_ * discrete_.width(), 0),
        all_continuous_(rows_ * continuous_.width(), 0.0f) {
    for (const v1::Leaf& leaf : trained.spec.observation()) {
      leaf_.emplace_back(RowBytes(leaf), torch::kUInt8);
    }
  }

  absl::Status Play(std::stop_token stop) {
    while (made_ < count_) {
      ASSIGN_OR_RETURN(const EnvPool::Event event, pool_->Receive(0, stop));
      if (event == EnvPool::Event::kAbsent) continue;
      NoteEnds(/*all=*/event == EnvPool::Event::kReset);
      const std::string& active = pool_->batch(0).active();
      for (int64_t row = 0; row < rows_; ++row) {
        if (active.empty() || active[row] != 0) Decide(row);
      }
      pool_->Send(0, columns_.Write(all_discrete_.data(),
                                    all_continuous_.data(), rows_));
    }
    return absl::OkStatus();
  }

  std::map<std::string, torch::Tensor> Record() {
    std::map<std::string, torch::Tensor> all;
    const std::string spec = trained_.spec.SerializeAsString();
    Column<uint8_t> bytes(static_cast<int64_t>(spec.size()), torch::kUInt8);
    bytes.Add(reinterpret_cast<const uint8_t*>(spec.data()));
    all["spec"] = bytes.Tensor({bytes.width()});
    all["row"] = row_.Tensor({made_});
    all["begins"] = begins_.Tensor({made_});
    for (size_t i = 0; i < leaf_.size(); ++i) {
      const v1::Leaf& leaf = trained_.spec.observation(static_cast<int>(i));
      std::vector<int64_t> shape = {made_};
      shape.insert(shape.end(), leaf.shape().begin(), leaf.shape().end());
      torch::Tensor values = leaf_[i].Tensor({made_ * leaf_[i].width()});
      if (leaf.dtype() != v1::UINT8) {
        values = values.view(TorchType(leaf.dtype()));
      }
      all["observation." + leaf.path()] = values.view(shape);
    }
    if (discrete_.width() > 0) {
      all["discrete"] = discrete_.Tensor({made_, discrete_.width()});
    }
    if (continuous_.width() > 0) {
      all["continuous"] = continuous_.Tensor({made_, continuous_.width()});
    }
    all["value"] = value_.Tensor({made_});
    if (states_.width() > 0) {
      all["state"] = states_.Tensor({made_, states_.width()});
    }
    return all;
  }

 private:
  // Whose next decision begins an episode.
  void NoteEnds(bool all) {
    const v1::StepBatch& batch = pool_->batch(0);
    for (int64_t row = 0; row < rows_; ++row) {
      if (all || batch.terminated()[row] || batch.truncated()[row]) {
        fresh_[row] = true;
      }
    }
    for (const v1::RowError& error : batch.error()) fresh_[error.row()] = true;
  }

  void Decide(int64_t row) {
    const int64_t t = at_[row]++;
    const auto columns = [&](int leaf) { return pool_->Observation(0, leaf); };
    seen_.WriteRow(t, row, columns, row);
    float* state = state_.data() + row * states_.width();
    if (fresh_[row]) {
      seen_.Restart(t, row, 1);
      std::fill_n(state, states_.width(), 0.0f);
    } else {
      const uint8_t ended = 0;
      seen_.Continue(t, row, 1, &ended);
    }
    if (normalizer_.observations()) {
      normalizer_.Scale(seen_.Numbers(t, row), 1, seen_.stride());
    }
    Observations shown;
    shown.state = state;
    seen_.View(t, row, 1, &scratch_, &shown);
    DecisionOutput out;
    float log_prob = 0, value = 0;
    out.discrete = all_discrete_.data() + row * discrete_.width();
    out.continuous = all_continuous_.data() + row * continuous_.width();
    out.log_prob = &log_prob;
    out.value = &value;
    out.state = state;
    policy_->Decide(shown, /*greedy=*/true, &draws_, out);

    const uint8_t begins = fresh_[row];
    fresh_[row] = false;
    if (made_ == count_) return;
    ++made_;
    begins_.Add(&begins);
    row_.Add(&row);
    for (size_t i = 0; i < leaf_.size(); ++i) {
      const absl::string_view column = columns(static_cast<int>(i));
      leaf_[i].Add(reinterpret_cast<const uint8_t*>(column.data()) +
                   row * leaf_[i].width());
    }
    discrete_.Add(out.discrete);
    continuous_.Add(out.continuous);
    value_.Add(&value);
    states_.Add(state);
  }

  EnvPool* const pool_;
  const TrainedEnv& trained_;
  Policy* const policy_;
  const Normalizer& normalizer_;
  const int64_t count_, rows_;
  int64_t made_ = 0;
  ObservationStore seen_;
  ObservationStore::Scratch scratch_;
  ActionColumns columns_;
  Draws draws_{1};            // not drawn from
  std::vector<int64_t> at_;   // [rows]  decisions that it has made
  std::vector<char> fresh_;   // [rows]  its next decision begins an episode
  std::vector<float> state_;  // [rows, S]
  Column<uint8_t> begins_;
  Column<int64_t> row_, discrete_;
  Column<float> continuous_, value_, states_;
  std::vector<Column<uint8_t>> leaf_;
  std::vector<int64_t> all_discrete_;  // [rows, K]
  std::vector<float> all_continuous_;  // [rows, A]
};

}  // namespace

absl::StatusOr<std::map<std::string, torch::Tensor>> RecordDecisions(
    EnvWorkerOptions options, const TrainedEnv& trained, Policy* policy,
    const Normalizer& normalizer, int64_t count, std::stop_token stop) {
  v1::EnvConfig* env = &options.env;
  const int agents = SlotsOf(trained.spec);
  env->set_num_envs(std::max(1, kRows / agents) * agents);
  env->set_num_workers(1);
  env->set_groups(1);
  env->set_remote_workers(0);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<EnvPool> pool,
      EnvPool::Start(options, kDecisionWorker, /*incarnation=*/1, stop));
  if (!SameLeaves(pool->spec(), trained.spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat("env \"", env->id(),
                     "\" has other spaces in evaluations than in training; "
                     "evaluation.kwargs may change neither observations nor "
                     "actions"));
  }
  const Normalizer scaling = normalizer.ForEvaluation();
  Player player(pool.get(), trained, policy, scaling, count);
  RETURN_IF_ERROR(player.Play(stop));
  return player.Record();
}

}  // namespace flotilla
