#include "envserver/thread_vector_env.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "services/base/printable.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/env/group_layout.h"
#include "services/env/numbers.h"

namespace flotilla {
namespace {

// What a row's error says, so that learners need not cut it again; each of two
// reasons in it.
constexpr size_t kMaxErrorBytes = 480;
constexpr size_t kMaxReasonBytes = 200;

// Environments are others' code, and may throw.
template <typename Call>
auto Guard(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an exception that is no std::exception");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadVectorEnv>> ThreadVectorEnv::Make(
    const Options& options, MakeEnv make, Listener* listener) {
  std::vector<std::unique_ptr<Environment>> environments;
  for (int i = 0; i < options.num_envs; ++i) {
    ASSIGN_OR_RETURN(auto environment, Guard(make));
    environments.push_back(std::move(environment));
  }
  v1::EnvSpec spec = environments[0]->spec();
  spec.MergeFrom(options.stated);
  ASSIGN_OR_RETURN(const GroupLayout layout,
                   MakeGroupLayout(spec, options.num_envs, options.num_groups));
  std::unique_ptr<ThreadVectorEnv> result(
      new ThreadVectorEnv(options, std::move(make), listener, std::move(spec)));
  result->observation_bytes_ = layout.observation_bytes;
  result->action_bytes_ = layout.action_bytes;
  for (int i = 0; i < options.num_envs; ++i) {
    RowState& row = result->states_[i];
    row.index = i;
    row.env = std::move(environments[i]);
    row.observation.resize(layout.observation_bytes.size());
    row.action.resize(layout.action_bytes.size());
    for (size_t bytes : layout.observation_bytes) {
      row.final_observation.emplace_back(bytes, '\0');
    }
  }
  RETURN_IF_ERROR(result->StartThreads());
  return result;
}

ThreadVectorEnv::ThreadVectorEnv(const Options& options, MakeEnv make,
                                 Listener* listener, v1::EnvSpec spec)
    : options_(options),
      make_(std::move(make)),
      listener_(listener),
      rows_(options.num_envs / options.num_groups),
      spec_(std::move(spec)),
      states_(options.num_envs),
      groups_(options.num_groups) {}

absl::Status ThreadVectorEnv::StartThreads() {
  const int threads = std::min(options_.threads, options_.num_envs);
  if (threads == 1) return absl::OkStatus();
  return Guard([&] {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { WorkerMain(); });
    }
    return absl::OkStatus();
  });
}

ThreadVectorEnv::~ThreadVectorEnv() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadVectorEnv::Reset(int group, ObservationBuffers observation,
                            v1::StepBatch* out) {
  Begin(group, nullptr, observation, out);
}

void ThreadVectorEnv::Step(int group, const v1::ActionBatch& actions,
                           ObservationBuffers observation, v1::StepBatch* out) {
  Begin(group, &actions, observation, out);
}

void ThreadVectorEnv::Begin(int group, const v1::ActionBatch* actions,
                            ObservationBuffers observation,
                            v1::StepBatch* out) {
  groups_[group].reset = actions == nullptr;
  groups_[group].out = out;
  const std::span<RowState> rows = RowsOf(group);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < observation.size(); ++i) {
      const size_t bytes = observation_bytes_[i];
      rows[r].observation[i] = observation[i].subspan(r * bytes, bytes);
    }
    for (size_t i = 0; actions != nullptr && i < action_bytes_.size(); ++i) {
      const size_t bytes = action_bytes_[i];
      rows[r].action[i] =
          std::as_bytes(std::span(actions->action(static_cast<int>(i))))
              .subspan(r * bytes, bytes);
    }
  }
  if (threads_.empty()) {
    for (RowState& row : rows) RunRow(groups_[group].reset, &row);
    Complete(group);
    return;
  }
  MutexLock lock(&mu_);
  groups_[group].next_row = 0;
  groups_[group].remaining = rows_;
  queue_.push_back(group);
  work_.notify_all();
}

void ThreadVectorEnv::RunRow(bool reset, RowState* row) {
  row->outcome = Outcome();
  row->finished.reset();
  row->lost = row->pending;
  if (row->pending) {
    row->error = absl::OkStatus();
    if (absl::Now() >= row->retry_at) row->error = Retry(row);
  } else {
    row->error = reset ? StartEpisode(row) : StepRow(row);
  }
  if (!row->error.ok()) SetAside(row);
  if (!row->pending) return;
  for (std::span<std::byte> leaf : row->observation) {
    std::memset(leaf.data(), 0, leaf.size());
  }
}

absl::Status ThreadVectorEnv::StartEpisode(RowState* row) {
  row->steps = 0;
  const uint64_t seed =
      EpisodeSeed(options_.seed, options_.worker_id, row->index,
                  options_.incarnation, row->episode++);
  RETURN_IF_ERROR(
      Guard([&] { return row->env->Reset(seed, row->observation); }));
  return CheckObservation(*row);
}

absl::Status ThreadVectorEnv::CheckObservation(const RowState& row) const {
  for (size_t i = 0; i < row.observation.size(); ++i) {
    const v1::Leaf& leaf = spec_.observation(static_cast<int>(i));
    if (leaf.dtype() != v1::FLOAT32 || AllUsable(row.observation[i])) continue;
    return CheckNumbers(
        absl::StrCat("the observation",
                     leaf.path().empty() ? "" : " \"" + leaf.path() + "\""),
        row.observation[i]);
  }
  return absl::OkStatus();
}

absl::Status ThreadVectorEnv::StepRow(RowState* row) {
  ASSIGN_OR_RETURN(row->outcome, Guard([&] {
                     return row->env->Step(row->action, row->observation);
                   }));
  Outcome& outcome = row->outcome;
  RETURN_IF_ERROR(
      CheckNumbers("the reward", std::as_bytes(std::span(&outcome.reward, 1))));
  RETURN_IF_ERROR(CheckObservation(*row));
  ++row->steps;
  row->game.set_length(row->game.length() + 1);
  row->game.set_raw_return(row->game.raw_return() + outcome.reward);
  const int64_t limit = spec_.max_episode_steps();
  outcome.truncated = !outcome.terminated &&
                      (outcome.truncated || (limit > 0 && row->steps >= limit));
  if (!outcome.terminated && !outcome.truncated) return absl::OkStatus();
  for (size_t i = 0; i < row->observation.size(); ++i) {
    std::memcpy(row->final_observation[i].data(), row->observation[i].data(),
                row->observation[i].size());
  }
  RETURN_IF_ERROR(StartEpisode(row));
  if (row->env->GameOver(&row->game)) {
    row->finished = std::exchange(row->game, v1::EpisodeEnd());
  }
  return absl::OkStatus();
}

void ThreadVectorEnv::SetAside(RowState* row) {
  row->outcome = Outcome();
  row->finished.reset();
  row->game.Clear();
  // A reset that failed too: only another environment may help.
  const bool again = std::exchange(row->pending, true);
  if (options_.renew_failed || again) row->env.reset();
  row->retry_at = absl::Now() + options_.retry_wait;
  if (options_.retry_wait > absl::ZeroDuration() || again) return;
  const auto retry = [&] {
    const absl::Status status = Retry(row);
    if (status.ok()) return true;
    row->error = absl::InternalError(absl::StrCat(
        PrintableLine(row->error.message(), kMaxReasonBytes),
        "; then: ", PrintableLine(status.message(), kMaxReasonBytes)));
    row->env.reset();
    return false;
  };
  // The reset may fail where a new environment does not.
  if (!retry() && !options_.renew_failed) retry();
}

absl::Status ThreadVectorEnv::Retry(RowState* row) {
  if (row->env == nullptr) {
    ASSIGN_OR_RETURN(row->env, Guard(make_));
  }
  RETURN_IF_ERROR(StartEpisode(row));
  row->pending = false;
  return absl::OkStatus();
}

void ThreadVectorEnv::Complete(int group) {
  v1::StepBatch* out = groups_[group].out;
  out->mutable_reward()->resize(rows_ * sizeof(float));
  out->mutable_terminated()->resize(rows_);
  out->mutable_truncated()->resize(rows_);
  out->clear_final_row();
  out->mutable_final_observation()->clear_leaf();
  out->clear_episode_end();
  out->clear_error();
  out->clear_active();
  absl::Duration delay = absl::ZeroDuration();
  bool nobody = true;
  const std::span<RowState> rows = RowsOf(group);
  for (int r = 0; r < rows_; ++r) {
    FillRow(rows[r], r, out);
    delay = std::max(delay, rows[r].outcome.delay);
    nobody = nobody && rows[r].pending;
  }
  listener_->OnGroupDone(group, nobody ? kHold : delay);
}

void ThreadVectorEnv::FillRow(const RowState& row, int r, v1::StepBatch* out) {
  const Outcome& outcome = row.outcome;
  std::memcpy(out->mutable_reward()->data() + r * sizeof(float),
              &outcome.reward, sizeof(float));
  (*out->mutable_terminated())[r] = outcome.terminated;
  (*out->mutable_truncated())[r] = outcome.truncated;
  if (outcome.terminated || outcome.truncated) {
    v1::Columns* finals = out->mutable_final_observation();
    out->add_final_row(r);
    for (size_t i = 0; i < row.final_observation.size(); ++i) {
      if (out->final_row_size() == 1) finals->add_leaf();
      finals->mutable_leaf(static_cast<int>(i))
          ->append(row.final_observation[i]);
    }
  }
  if (row.finished) {
    v1::EpisodeEnd* end = out->add_episode_end();
    *end = *row.finished;
    end->set_row(r);
  }
  if (row.lost || !row.error.ok()) {
    v1::RowError* error = out->add_error();
    error->set_row(r);
    if (row.error.ok()) return;  // nothing new
    error->set_message(PrintableLine(
        absl::StrCat("env \"", spec_.env_id(), "\", row ", row.index, ": ",
                     std::string(row.error.message())),
        kMaxErrorBytes));
  }
}

std::span<ThreadVectorEnv::RowState> ThreadVectorEnv::RowsOf(int group) {
  return std::span(states_).subspan(static_cast<size_t>(group) * rows_, rows_);
}

void ThreadVectorEnv::WorkerMain() {
  while (const auto claimed = ClaimRow()) {
    const auto [group, row] = *claimed;
    RunRow(groups_[group].reset, &RowsOf(group)[row]);
    if (FinishRow(group)) Complete(group);
  }
}

std::optional<std::pair<int, int>> ThreadVectorEnv::ClaimRow() {
  MutexLock lock(&mu_);
  while (!stop_ && queue_.empty()) lock.Wait(&work_);
  if (stop_) return std::nullopt;
  const int group = queue_.front();
  const int row = groups_[group].next_row++;
  if (groups_[group].next_row == rows_) queue_.pop_front();
  return std::pair(group, row);
}

bool ThreadVectorEnv::FinishRow(int group) {
  MutexLock lock(&mu_);
  return --groups_[group].remaining == 0;
}

}  // namespace flotilla
