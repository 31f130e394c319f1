#ifndef FLOTILLA_TESTS_SERVICES_ENV_FAKE_VECTOR_ENV_H_
#define FLOTILLA_TESTS_SERVICES_ENV_FAKE_VECTOR_ENV_H_

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/mutex.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Environments named "Fake" that a test steers. A row observes float32 [2]: its
// number over all rows, and its steps; it is rewarded with its action, one of
// {0, 1, 2}. Action 2 terminates.
//
// Groups complete inside the call, unless held. Thread-safe.
class FakeFactory final : public VectorEnvFactory {
 public:
  std::vector<std::string> ListEnvironments() const override {
    return {"Broken", "Fake"};
  }

  absl::StatusOr<v1::EnvSpec> Describe(const std::string& env_id,
                                       const v1::EnvOptions&) const override {
    if (env_id == "Broken") return absl::InternalError("does not work");
    if (env_id != "Fake") {
      return absl::NotFoundError(absl::StrCat("no \"", env_id, "\""));
    }
    v1::EnvSpec spec;
    spec.set_env_id(env_id);
    v1::Leaf* leaf = spec.add_observation();
    leaf->set_dtype(v1::FLOAT32);
    leaf->add_shape(2);
    leaf = spec.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(3);
    MutexLock lock(&mu_);
    spec.set_agents(agents_);
    return spec;
  }

  absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const override;

  // From now on steps of `group` wait for Release.
  void Hold(int group) {
    MutexLock lock(&mu_);
    held_.insert(group);
  }

  // Waits for a held step of `group` to be begun, and only now takes it. Holds
  // no more.
  void Release(int group) {
    std::function<void()> step;
    {
      MutexLock lock(&mu_);
      while (!begun_.contains(group)) lock.Wait(&changed_);
      held_.erase(group);
      step = begun_[group];
      begun_.erase(group);
    }
    step();
  }

  void AwaitHeld(int group) {
    MutexLock lock(&mu_);
    while (!begun_.contains(group)) lock.Wait(&changed_);
  }

  // Slots of an environment; each is on its own.
  void set_agents(int agents) {
    MutexLock lock(&mu_);
    agents_ = agents;
  }

  void set_delay(absl::Duration delay) {
    MutexLock lock(&mu_);
    delay_ = delay;
  }

  // Changes each group's batch before it goes out: its observations [R, 2], and
  // everything else. `step` counts from 0, the reset.
  using Spoil =
      std::function<void(int step, float* observation, v1::StepBatch* out)>;
  void set_spoil(Spoil spoil) {
    MutexLock lock(&mu_);
    spoil_ = std::move(spoil);
  }

  // Vector envs that exist.
  int alive() const {
    MutexLock lock(&mu_);
    return alive_;
  }
  void AwaitAlive(int count) const {
    MutexLock lock(&mu_);
    while (alive_ != count) lock.Wait(&changed_);
  }

 private:
  friend class FakeVectorEnv;

  mutable Mutex mu_;
  mutable std::condition_variable changed_;
  mutable int alive_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int> held_ ABSL_GUARDED_BY(mu_);
  mutable std::map<int, std::function<void()>> begun_ ABSL_GUARDED_BY(mu_);
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
  int agents_ ABSL_GUARDED_BY(mu_) = 0;
  Spoil spoil_ ABSL_GUARDED_BY(mu_);
};

class FakeVectorEnv final : public VectorEnv {
 public:
  FakeVectorEnv(const FakeFactory* factory, v1::EnvSpec spec, int rows,
                Listener* listener)
      : factory_(factory),
        spec_(std::move(spec)),
        rows_(rows),
        listener_(listener) {
    Count(+1);
  }
  ~FakeVectorEnv() override { Count(-1); }

  const v1::EnvSpec& spec() const override { return spec_; }

  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override {
    steps_[group] = 0;
    Begin(group, nullptr, observation, out);
  }

  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override {
    ++steps_[group];
    Begin(group, &actions, observation, out);
  }

 private:
  void Count(int change) {
    MutexLock lock(&factory_->mu_);
    factory_->alive_ += change;
    factory_->changed_.notify_all();
  }

  void Begin(int group, const v1::ActionBatch* actions,
             ObservationBuffers observation, v1::StepBatch* out) {
    absl::Duration delay;
    const auto step = [=, this](absl::Duration delay) {
      Fill(group, actions, observation, out);
      FakeFactory::Spoil spoil;
      {
        MutexLock lock(&factory_->mu_);
        spoil = factory_->spoil_;
      }
      if (spoil) {
        spoil(steps_[group], reinterpret_cast<float*>(observation[0].data()),
              out);
      }
      listener_->OnGroupDone(group, delay);
    };
    {
      MutexLock lock(&factory_->mu_);
      delay = factory_->delay_;
      if (factory_->held_.contains(group)) {
        factory_->begun_[group] = [step] { step(absl::ZeroDuration()); };
        factory_->changed_.notify_all();
        return;
      }
    }
    step(delay);
  }

  // Null `actions`: a reset.
  void Fill(int group, const v1::ActionBatch* actions,
            ObservationBuffers observation, v1::StepBatch* out) {
    out->clear_final_row();
    out->mutable_final_observation()->clear_leaf();
    out->clear_episode_end();
    out->clear_error();
    out->mutable_reward()->resize(rows_ * sizeof(float));
    out->set_terminated(std::string(rows_, '\0'));
    out->set_truncated(std::string(rows_, '\0'));
    for (int r = 0; r < rows_; ++r) {
      int64_t action = 0;
      if (actions != nullptr) {
        std::memcpy(&action, actions->action(0).data() + r * 8, 8);
      }
      const float reward = static_cast<float>(action);
      std::memcpy(out->mutable_reward()->data() + r * 4, &reward, 4);
      const float seen[2] = {static_cast<float>(group * rows_ + r),
                             static_cast<float>(steps_[group])};
      std::memcpy(observation[0].data() + r * sizeof(seen), seen, sizeof(seen));
      if (action != 2) continue;
      (*out->mutable_terminated())[r] = 1;
      if (out->final_row_size() == 0) {
        out->mutable_final_observation()->add_leaf();
      }
      out->add_final_row(r);
      out->mutable_final_observation()->mutable_leaf(0)->append(
          reinterpret_cast<const char*>(seen), sizeof(seen));
      out->add_episode_end()->set_row(r);
    }
  }

  const FakeFactory* const factory_;
  const v1::EnvSpec spec_;
  const int rows_;
  Listener* const listener_;
  std::map<int, int> steps_;
};

inline absl::StatusOr<std::unique_ptr<VectorEnv>> FakeFactory::Make(
    const v1::Hello& hello, VectorEnv::Listener* listener) const {
  auto spec = Describe(hello.env_id(), hello.options());
  if (!spec.ok()) return spec.status();
  return std::make_unique<FakeVectorEnv>(
      this, *std::move(spec), hello.num_envs() / hello.num_groups(), listener);
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_FAKE_VECTOR_ENV_H_
