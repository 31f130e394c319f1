#include "services/env/replay_call.h"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/mutex.h"
#include "services/base/status_macros.h"
#include "services/env/group_layout.h"

namespace flotilla {
namespace {

// Of the one group: waits for its operation, wherever that runs.
class Turn final : public VectorEnv::Listener {
 public:
  // Nobody waits for environments that take time: it has passed.
  void OnGroupDone(int, absl::Duration) override { End(absl::OkStatus()); }
  void OnFailure(absl::Status status) override { End(std::move(status)); }

  absl::Status Await() {
    MutexLock lock(&mu_);
    while (!ended_) lock.Wait(&over_);
    return *std::exchange(ended_, std::nullopt);
  }

 private:
  void End(absl::Status status) {
    MutexLock lock(&mu_);
    ended_ = std::move(status);
    over_.notify_all();
  }

  Mutex mu_;
  std::condition_variable over_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
};

// T of episode `index`, whose actions are of the right size.
absl::StatusOr<int64_t> StepsOf(const v1::ReplayRequest& request, int index,
                                const GroupLayout& layout) {
  const v1::ReplayEpisode& episode = request.episode(index);
  const auto leaves = static_cast<int>(layout.action_bytes.size());
  if (episode.action_size() != leaves) {
    return absl::InvalidArgumentError(absl::StrCat(
        "episode ", index, " has ", episode.action_size(),
        " action leaves, want ", leaves, " as the environment has"));
  }
  int64_t steps = 0;
  for (int i = 0; i < leaves; ++i) {
    const auto step_bytes =
        layout.action_bytes[i] * static_cast<size_t>(layout.agents);
    const size_t bytes = episode.action(i).size();
    const auto here = static_cast<int64_t>(bytes / step_bytes);
    if (i == 0) steps = here;
    if (bytes % step_bytes != 0 || here != steps || steps == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "action leaf ", i, " of episode ", index, " has ", bytes,
          " bytes, want ", step_bytes, " for each step, of 1 or more"));
    }
  }
  return steps;
}

class Replayer {
 public:
  Replayer(const v1::ReplayRequest& request,
           absl::FunctionRef<bool(const v1::ReplayStep&)> send)
      : request_(request), send_(send) {}

  absl::Status Run(const VectorEnvFactory& factory) {
    if (request_.episode_size() == 0) {
      return absl::InvalidArgumentError("episode is empty, want 1 or more");
    }
    std::vector<uint64_t> seeds;
    for (const v1::ReplayEpisode& e : request_.episode()) {
      seeds.push_back(e.seed());
    }
    ASSIGN_OR_RETURN(
        env_, factory.MakeReplay(request_.env_id(), request_.options(),
                                 std::move(seeds), request_.frames(), &turn_));
    ASSIGN_OR_RETURN(const int agents, AgentsOf(env_->spec()));
    ASSIGN_OR_RETURN(layout_, MakeGroupLayout(env_->spec(), agents, 1));
    std::vector<int64_t> steps;
    for (int k = 0; k < request_.episode_size(); ++k) {
      ASSIGN_OR_RETURN(steps.emplace_back(), StepsOf(request_, k, layout_));
    }
    for (const size_t bytes : layout_.observation_bytes) {
      arrays_.emplace_back(bytes * static_cast<size_t>(agents), std::byte{0});
    }
    for (std::vector<std::byte>& array : arrays_) views_.emplace_back(array);
    env_->Reset(0, views_, &batch_);
    RETURN_IF_ERROR(turn_.Await());
    for (int k = 0; k < request_.episode_size(); ++k) {
      ASSIGN_OR_RETURN(const bool goes_on, PlayEpisode(k, steps[k]));
      if (!goes_on) break;
    }
    return absl::OkStatus();
  }

 private:
  // Whether the next one begins where it should.
  absl::StatusOr<bool> PlayEpisode(int k, int64_t steps) {
    RETURN_IF_ERROR(Answer(k, 0, /*frame=*/frames_before_));
    if (batch_.error_size() > 0) return false;
    std::vector<bool> gone(static_cast<size_t>(layout_.agents));
    for (int64_t t = 0; t < steps; ++t) {
      RETURN_IF_ERROR(Act(k, t));
      size_t over = 0;
      for (size_t s = 0; s < gone.size(); ++s) {
        gone[s] = gone[s] || batch_.terminated()[s] != 0 ||
                  batch_.truncated()[s] != 0;
        over += gone[s];
      }
      // The next episode's first frame, after this one's last.
      frames_before_ = 1;
      RETURN_IF_ERROR(Answer(k, t + 1, /*frame=*/0));
      if (batch_.error_size() > 0) return false;
      if (over == gone.size()) return t + 1 == steps;
    }
    return false;
  }

  absl::Status Act(int k, int64_t t) {
    const v1::ReplayEpisode& episode = request_.episode(k);
    actions_.set_seq(batch_.seq());
    for (int i = 0; i < episode.action_size(); ++i) {
      if (actions_.action_size() == i) actions_.add_action();
      const auto bytes =
          layout_.action_bytes[i] * static_cast<size_t>(layout_.agents);
      actions_.mutable_action(i)->assign(episode.action(i),
                                         static_cast<size_t>(t) * bytes, bytes);
    }
    const absl::Status fits =
        CheckActions(env_->spec(), layout_, batch_, actions_);
    if (!fits.ok()) {
      return absl::Status(fits.code(),
                          absl::StrCat("episode ", k, ", step ", t, ": ",
                                       std::string(fits.message())));
    }
    env_->Step(0, actions_, views_, &batch_);
    return turn_.Await();
  }

  absl::Status Answer(int k, int64_t step, size_t frame) {
    out_.Clear();
    out_.set_episode(k);
    out_.set_step(static_cast<int32_t>(step));
    if (step > 0) {
      out_.set_reward(batch_.reward());
      out_.set_terminated(batch_.terminated());
      out_.set_truncated(batch_.truncated());
      *out_.mutable_episode_end() = batch_.episode_end();
    }
    if (batch_.error_size() > 0) {
      const std::string& why = batch_.error(0).message();
      out_.set_error(why.empty() ? "the environment failed" : why);
    }
    const std::span<const v1::Frame> frames = env_->frames();
    if (frame < frames.size()) *out_.mutable_frame() = frames[frame];
    if (send_(out_)) return absl::OkStatus();
    return absl::CancelledError("nobody looks any more");
  }

  const v1::ReplayRequest& request_;
  const absl::FunctionRef<bool(const v1::ReplayStep&)> send_;
  Turn turn_;  // before env_, which tells it
  std::unique_ptr<VectorEnv> env_;
  GroupLayout layout_;
  std::vector<std::vector<std::byte>> arrays_;  // per leaf, of all slots
  std::vector<std::span<std::byte>> views_;
  v1::StepBatch batch_;
  v1::ActionBatch actions_;
  v1::ReplayStep out_;
  size_t frames_before_ = 0;  // in the last operation, before its reset's
};

}  // namespace

absl::Status PlayAgain(
    const VectorEnvFactory& factory, const v1::ReplayRequest& request,
    absl::FunctionRef<bool(const v1::ReplayStep& step)> send) {
  return Replayer(request, send).Run(factory);
}

}  // namespace flotilla
