#include "envserver/thread_vector_env.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/guard.h"
#include "glog/logging.h"
#include "services/base/printable.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/numbers.h"

namespace flotilla {
namespace {

// What a row's error says, so that learners need not cut it again; each of two
// reasons in it.
constexpr size_t kMaxErrorBytes = 480;
constexpr size_t kMaxReasonBytes = 200;

void Blank(Row observation) {
  for (std::span<std::byte> leaf : observation) {
    std::memset(leaf.data(), 0, leaf.size());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadVectorEnv>> ThreadVectorEnv::Make(
    const Options& asked, MakeEnv make, Listener* listener) {
  Options options = asked;
  std::vector<std::unique_ptr<MultiAgentEnvironment>> environments(1);
  ASSIGN_OR_RETURN(environments[0], Guard(make));
  v1::EnvSpec spec = environments[0]->spec();
  spec.MergeFrom(options.stated);
  spec.set_renders(environments[0]->renders());
  if (options.num_envs == 0) {
    ASSIGN_OR_RETURN(options.num_envs, AgentsOf(spec));
  }
  ASSIGN_OR_RETURN(GroupLayout layout,
                   MakeGroupLayout(spec, options.num_envs, options.num_groups));
  const int agents = layout.agents;
  while (std::ssize(environments) < options.num_envs / agents) {
    ASSIGN_OR_RETURN(auto environment, Guard(make));
    environments.push_back(std::move(environment));
  }
  std::unique_ptr<ThreadVectorEnv> result(new ThreadVectorEnv(
      options, std::move(make), listener, std::move(spec), std::move(layout)));
  for (size_t e = 0; e < environments.size(); ++e) {
    EnvState& env = result->states_[e];
    env.row = static_cast<int>(e) * agents;
    env.env = std::move(environments[e]);
    env.slots.resize(static_cast<size_t>(agents));
    env.state.resize(static_cast<size_t>(agents));
    for (size_t s = 0; s < env.slots.size(); ++s) {
      SlotState& state = env.state[s];
      state.observation.resize(result->layout_.observation_bytes.size());
      state.action.resize(result->layout_.action_bytes.size());
      for (size_t bytes : result->layout_.observation_bytes) {
        state.final_observation.emplace_back(bytes, '\0');
      }
      env.slots[s].observation = state.observation;
      env.slots[s].action = state.action;
    }
  }
  RETURN_IF_ERROR(result->pool_.Start(
      std::min(options.threads, static_cast<int>(result->states_.size()))));
  return result;
}

ThreadVectorEnv::ThreadVectorEnv(const Options& options, MakeEnv make,
                                 Listener* listener, v1::EnvSpec spec,
                                 GroupLayout layout)
    : options_(options),
      make_(std::move(make)),
      listener_(listener),
      spec_(std::move(spec)),
      layout_(std::move(layout)),
      states_(static_cast<size_t>(layout_.environments() * layout_.groups)),
      groups_(static_cast<size_t>(layout_.groups)),
      pool_(
          layout_.groups,
          [this](int group, int env) {
            RunEnv(groups_[group].reset, &EnvsOf(group)[env]);
          },
          [this](int group) { Complete(group); }) {}

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
  frames_.clear();
  groups_[group].reset = actions == nullptr;
  groups_[group].out = out;
  const std::span<EnvState> envs = EnvsOf(group);
  size_t r = 0;
  for (EnvState& env : envs) {
    for (SlotState& state : env.state) {
      for (size_t i = 0; i < observation.size(); ++i) {
        const size_t bytes = layout_.observation_bytes[i];
        state.observation[i] = observation[i].subspan(r * bytes, bytes);
      }
      for (size_t i = 0; actions != nullptr && i < state.action.size(); ++i) {
        const size_t bytes = layout_.action_bytes[i];
        state.action[i] =
            std::as_bytes(std::span(actions->action(static_cast<int>(i))))
                .subspan(r * bytes, bytes);
      }
      ++r;
    }
  }
  pool_.Begin(group, layout_.environments());
}

void ThreadVectorEnv::RunEnv(bool reset, EnvState* env) {
  for (size_t s = 0; s < env->slots.size(); ++s) {
    env->slots[s].outcome = Outcome();
    env->state[s].finished.reset();
  }
  env->unusable = false;
  env->lost = env->pending;
  if (env->pending) {
    env->error = absl::OkStatus();
    if (SteadyNow() >= env->retry_at) env->error = Retry(env);
  } else {
    env->error = reset ? StartEpisode(env) : StepEnv(env);
  }
  if (!env->error.ok()) SetAside(env);
  if (env->pending) {
    for (const SlotState& state : env->state) Blank(state.observation);
  }
}

absl::Status ThreadVectorEnv::StartEpisode(EnvState* env) {
  env->steps = 0;
  const uint64_t episode = env->episode++;
  uint64_t seed = EpisodeSeed(options_.seed, options_.worker_id, env->row,
                              options_.incarnation, episode);
  if (!options_.seeds.empty()) {
    seed = episode < options_.seeds.size() ? options_.seeds[episode] : 0;
  }
  for (size_t s = 0; s < env->slots.size(); ++s) {
    env->slots[s].active = true;
    env->state[s].gone = false;
    if (layout_.agents > 1) Blank(env->state[s].observation);
  }
  RETURN_IF_ERROR(
      Guard([&] { return env->env->ResetSlots(seed, env->slots); }));
  for (const SlotState& state : env->state) {
    RETURN_IF_ERROR(CheckUsable(env, CheckObservation(state)));
  }
  return Draw(*env);
}

absl::Status ThreadVectorEnv::CheckUsable(EnvState* env, absl::Status numbers) {
  env->unusable = env->unusable || !numbers.ok();
  return numbers;
}

absl::Status ThreadVectorEnv::Draw(const EnvState& env) {
  if (!options_.draws) return absl::OkStatus();
  return Guard([&] {
    frames_.push_back(env.env->Render());
    return absl::OkStatus();
  });
}

absl::Status ThreadVectorEnv::CheckObservation(const SlotState& state) const {
  for (size_t i = 0; i < state.observation.size(); ++i) {
    const v1::Leaf& leaf = spec_.observation(static_cast<int>(i));
    if (leaf.dtype() != v1::FLOAT32 || AllUsable(state.observation[i])) {
      continue;
    }
    return CheckNumbers(
        absl::StrCat("the observation",
                     leaf.path().empty() ? "" : " \"" + leaf.path() + "\""),
        state.observation[i]);
  }
  return absl::OkStatus();
}

absl::Status ThreadVectorEnv::StepEnv(EnvState* env) {
  for (size_t s = 0; s < env->slots.size(); ++s) {
    Slot& slot = env->slots[s];
    slot.acted = slot.active;
    if (layout_.agents > 1) {
      slot.active = true;
      Blank(slot.observation);
    }
  }
  RETURN_IF_ERROR(Guard([&] { return env->env->StepSlots(env->slots); }));
  RETURN_IF_ERROR(Draw(*env));
  ++env->steps;
  bool over = true;  // for all
  size_t ended = 0;
  for (size_t s = 0; s < env->slots.size(); ++s) {
    SlotState& state = env->state[s];
    Slot& slot = env->slots[s];
    if (state.gone) {
      slot.outcome = Outcome();
      slot.active = false;
      Blank(slot.observation);
      continue;
    }
    RETURN_IF_ERROR(CheckUsable(
        env, CheckNumbers("the reward",
                          std::as_bytes(std::span(&slot.outcome.reward, 1)))));
    RETURN_IF_ERROR(CheckUsable(env, CheckObservation(state)));
    if (EndSlot(env, s)) {
      ++ended;
    } else {
      over = false;
    }
  }
  if (ended == 0) return absl::OkStatus();
  if (over) RETURN_IF_ERROR(StartEpisode(env));
  for (size_t s = 0; s < env->slots.size(); ++s) {
    SlotState& state = env->state[s];
    const Outcome& outcome = env->slots[s].outcome;
    if (!outcome.terminated && !outcome.truncated) continue;
    bool game_over = false;
    RETURN_IF_ERROR(Guard([&] {
      game_over = env->env->SlotGameOver(s, &state.game);
      return absl::OkStatus();
    }));
    if (!game_over) continue;
    state.game.set_others_play_on(!over);
    state.finished = std::exchange(state.game, v1::EpisodeEnd());
  }
  return absl::OkStatus();
}

bool ThreadVectorEnv::EndSlot(EnvState* env, size_t slot) {
  SlotState& state = env->state[slot];
  Outcome& outcome = env->slots[slot].outcome;
  if (env->slots[slot].acted) state.game.set_length(state.game.length() + 1);
  state.game.set_raw_return(state.game.raw_return() + outcome.reward);
  const int64_t limit = spec_.max_episode_steps();
  outcome.truncated = !outcome.terminated &&
                      (outcome.truncated || (limit > 0 && env->steps >= limit));
  if (!outcome.terminated && !outcome.truncated) return false;
  for (size_t i = 0; i < state.observation.size(); ++i) {
    std::memcpy(state.final_observation[i].data(), state.observation[i].data(),
                state.observation[i].size());
  }
  state.gone = true;
  env->slots[slot].active = false;
  Blank(state.observation);
  return true;
}

void ThreadVectorEnv::SetAside(EnvState* env) {
  for (size_t s = 0; s < env->slots.size(); ++s) {
    env->slots[s].outcome = Outcome();
    env->slots[s].active = true;
    env->state[s].finished.reset();
    env->state[s].game.Clear();
  }
  // A reset that failed too: only another environment may help.
  const bool again = std::exchange(env->pending, true);
  if (options_.renew_failed || again) env->env.reset();
  env->retry_at = SteadyNow() + options_.retry_wait;
  if (options_.retry_wait > absl::ZeroDuration() || again) return;
  const auto retry = [&] {
    const absl::Status status = Retry(env);
    if (status.ok()) return true;
    env->error = absl::InternalError(absl::StrCat(
        PrintableLine(env->error.message(), kMaxReasonBytes),
        "; then: ", PrintableLine(status.message(), kMaxReasonBytes)));
    env->env.reset();
    return false;
  };
  // The reset may fail where a new environment does not.
  if (!retry() && !options_.renew_failed) retry();
}

absl::Status ThreadVectorEnv::Retry(EnvState* env) {
  if (env->env == nullptr) {
    ASSIGN_OR_RETURN(env->env, Guard(make_));
  }
  RETURN_IF_ERROR(StartEpisode(env));
  env->pending = false;
  return absl::OkStatus();
}

void ThreadVectorEnv::Complete(int group) {
  v1::StepBatch* out = groups_[group].out;
  const int rows = layout_.rows;
  out->mutable_reward()->resize(rows * sizeof(float));
  out->mutable_terminated()->resize(rows);
  out->mutable_truncated()->resize(rows);
  out->clear_final_row();
  out->mutable_final_observation()->clear_leaf();
  out->clear_episode_end();
  out->clear_error();
  out->mutable_active()->clear();
  absl::Duration delay = absl::ZeroDuration();
  bool nobody = true;
  int r = 0;
  for (const EnvState& env : EnvsOf(group)) {
    for (size_t s = 0; s < env.slots.size(); ++s, ++r) {
      FillRow(env, s, r, out);
      delay = std::max(delay, env.slots[s].outcome.delay);
    }
    nobody = nobody && env.pending;
  }
  listener_->OnGroupDone(group, nobody ? kHold : delay);
}

void ThreadVectorEnv::FillRow(const EnvState& env, size_t slot, int r,
                              v1::StepBatch* out) {
  const SlotState& state = env.state[slot];
  const Outcome& outcome = env.slots[slot].outcome;
  std::memcpy(out->mutable_reward()->data() + r * sizeof(float),
              &outcome.reward, sizeof(float));
  (*out->mutable_terminated())[r] = outcome.terminated;
  (*out->mutable_truncated())[r] = outcome.truncated;
  if (outcome.terminated || outcome.truncated) {
    v1::Columns* finals = out->mutable_final_observation();
    out->add_final_row(r);
    for (size_t i = 0; i < state.final_observation.size(); ++i) {
      if (out->final_row_size() == 1) finals->add_leaf();
      finals->mutable_leaf(static_cast<int>(i))
          ->append(state.final_observation[i]);
    }
  }
  if (state.finished) {
    v1::EpisodeEnd* end = out->add_episode_end();
    *end = *state.finished;
    end->set_row(r);
  }
  if (!env.slots[slot].active) {
    // Said only where somebody has no turn.
    if (out->active().empty()) out->mutable_active()->assign(layout_.rows, 1);
    (*out->mutable_active())[r] = 0;
  }
  if (env.lost || !env.error.ok()) FillError(env, slot, r, out);
}

void ThreadVectorEnv::FillError(const EnvState& env, size_t slot, int r,
                                v1::StepBatch* out) {
  v1::RowError* error = out->add_error();
  error->set_row(r);
  if (!env.pending) error->set_episode(env.episode - 1);
  // Nothing new, or said of the first slot.
  if (env.error.ok() || slot > 0) return;
  error->set_message(
      PrintableLine(absl::StrCat("env \"", spec_.env_id(), "\", row ", env.row,
                                 ": ", std::string(env.error.message())),
                    kMaxErrorBytes));
  error->set_unusable(env.unusable);
}

std::span<ThreadVectorEnv::EnvState> ThreadVectorEnv::EnvsOf(int group) {
  const auto envs = static_cast<size_t>(layout_.environments());
  return std::span(states_).subspan(static_cast<size_t>(group) * envs, envs);
}

}  // namespace flotilla
