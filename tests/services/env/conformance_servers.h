#ifndef FLOTILLA_TESTS_SERVICES_ENV_CONFORMANCE_SERVERS_H_
#define FLOTILLA_TESTS_SERVICES_ENV_CONFORMANCE_SERVERS_H_

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "envserver/environment.h"
#include "envserver/registry.h"
#include "envserver/thread_vector_env.h"
#include "services/base/random.h"
#include "services/env/env_service.h"
#include "tests/services/env/defective_service.h"
#include "tests/testing/in_process_server.h"

namespace flotilla {

// Two choices of two and three values, of which a mask allows some; a walk that
// they and the seed decide.
class Masked final : public Environment {
 public:
  Masked() {
    spec_.set_env_id("Masked");
    v1::Leaf* mask = spec_.add_observation();
    mask->set_path("mask");
    mask->set_dtype(v1::UINT8);
    mask->add_shape(5);
    v1::Leaf* place = spec_.add_observation();
    place->set_path("place");
    place->set_dtype(v1::FLOAT32);
    place->add_shape(2);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->add_shape(2);
    action->add_num_values_each(2);
    action->add_num_values_each(3);
    action->set_mask_path("mask");
    spec_.set_action_mask_path("mask");
    v1::EnvOption* option = spec_.add_option();
    option->set_name("wind");
    option->set_default_json("0.5");
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(uint64_t seed, Row observation) override {
    random_ = Random(seed);
    place_ = random_.Uniform();
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    for (size_t i = 0, first = 0; i < 2; first += 2, ++i) {
      const auto value = static_cast<size_t>(ReadValue<int64_t>(action[0], i));
      if (mask_[first + value] == 0) {
        return absl::InternalError("a value that the mask forbids");
      }
      place_ += 0.1 * static_cast<double>(value);
    }
    Observe(observation);
    Outcome outcome;
    outcome.reward = static_cast<float>(place_);
    outcome.terminated = place_ > 4;
    return outcome;
  }

 private:
  void Observe(Row observation) {
    for (uint8_t& bit : mask_) bit = random_.Below(2) == 1;
    mask_[random_.Below(2)] = mask_[2 + random_.Below(3)] = 1;
    std::memcpy(observation[0].data(), mask_, sizeof(mask_));
    WriteValue(observation[1], 0, static_cast<float>(place_));
    WriteValue(observation[1], 1, static_cast<float>(random_.Uniform()));
  }

  v1::EnvSpec spec_;
  Random random_{0};
  double place_ = 0;
  uint8_t mask_[5] = {};
};

// Rows of 8 MiB: two of them fit into a group, four do not.
class Wide final : public Environment {
 public:
  Wide() {
    spec_.set_env_id("Wide");
    v1::Leaf* place = spec_.add_observation();
    place->set_dtype(v1::INT64);
    place->add_shape(1 << 20);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->set_num_values(2);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status Reset(uint64_t seed, Row observation) override {
    place_ = static_cast<int64_t>(seed % 1000);
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    place_ += ReadValue<int64_t>(action[0]);
    Observe(observation);
    return Outcome();
  }

 private:
  void Observe(Row observation) const {
    std::memset(observation[0].data(), 0, observation[0].size());
    WriteValue(observation[0], 0, place_);
  }

  v1::EnvSpec spec_;
  int64_t place_ = 0;
};

// Three agents that walk at random, each until it is far enough; whose number is
// the step's, by three, has a rest. One that `fails` does so in the fourth step of
// some episodes.
class Team final : public MultiAgentEnvironment {
 public:
  explicit Team(bool fails = false) : fails_(fails) {
    spec_.set_env_id(fails ? "Fragile" : "Team");
    spec_.set_agents(3);
    v1::Leaf* place = spec_.add_observation();
    place->set_dtype(v1::FLOAT32);
    place->add_shape(2);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->set_num_values(3);
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  absl::Status ResetSlots(uint64_t seed, std::span<Slot> slots) override {
    random_ = Random(seed);
    step_ = 0;
    fails_now_ = fails_ && seed % 2 == 0;
    for (double& place : place_) place = random_.Uniform();
    Observe(slots);
    return absl::OkStatus();
  }

  absl::Status StepSlots(std::span<Slot> slots) override {
    ++step_;
    if (fails_now_ && step_ == 4) return absl::InternalError("fell apart");
    for (size_t s = 0; s < slots.size(); ++s) {
      if (!slots[s].acted) continue;
      const auto action = ReadValue<int64_t>(slots[s].action[0]);
      if (action < 0 || action > 2) return absl::InternalError("no action");
      const double walked = random_.Uniform() * static_cast<double>(action);
      place_[s] += walked;
      slots[s].outcome = {.reward = static_cast<float>(walked),
                          .terminated = place_[s] > 4};
    }
    Observe(slots);
    return absl::OkStatus();
  }

 private:
  void Observe(std::span<Slot> slots) const {
    for (size_t s = 0; s < slots.size(); ++s) {
      slots[s].active = step_ % 3 != static_cast<int>(s);
      WriteValue(slots[s].observation[0], 0, static_cast<float>(place_[s]));
      WriteValue(slots[s].observation[0], 1, static_cast<float>(s));
    }
  }

  const bool fails_;
  v1::EnvSpec spec_;
  Random random_{0};
  double place_[3] = {};
  int step_ = 0;
  bool fails_now_ = false;  // in this episode
};

class Factory final : public VectorEnvFactory {
 public:
  std::vector<std::string> ListEnvironments() const override {
    return {"CartPole-v1", "Connect4", "Fragile", "Masked",
            "Maze",        "Team",     "Wide"};
  }
  absl::StatusOr<v1::EnvSpec> Describe(
      const std::string& env_id, const v1::EnvOptions& options) const override {
    if (const auto own = MakeOwn(env_id)) return own->spec();
    return ours_.Describe(env_id, options);
  }
  absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const override {
    if (!MakeOwn(hello.env_id())) return ours_.Make(hello, listener);
    for (const auto& [name, value] : hello.options().kwargs()) {
      if (name == "wind") continue;
      return absl::InvalidArgumentError("env.options.kwargs." + name +
                                        " is none of Masked's: wind");
    }
    ThreadVectorEnv::Options options;
    options.num_envs = hello.num_envs();
    options.num_groups = hello.num_groups();
    options.seed = hello.seed();
    options.worker_id = hello.worker_id();
    options.incarnation = hello.incarnation();
    if (hello.options().max_episode_steps() > 0) {
      options.stated.set_max_episode_steps(hello.options().max_episode_steps());
    }
    return ThreadVectorEnv::Make(
        options,
        [id = hello.env_id()]()
            -> absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> {
          return MakeOwn(id);
        },
        listener);
  }

 private:
  // Null: it is none of those above.
  static std::unique_ptr<MultiAgentEnvironment> MakeOwn(
      const std::string& env_id) {
    if (env_id == "Fragile") return std::make_unique<Team>(/*fails=*/true);
    if (env_id == "Masked") return std::make_unique<Masked>();
    if (env_id == "Team") return std::make_unique<Team>();
    if (env_id == "Wide") return std::make_unique<Wide>();
    return nullptr;
  }

  const EnvironmentRegistry registry_;
  const RegistryFactory ours_{&registry_, 1};
};

// A server of ours, in this process.
class Server {
 public:
  explicit Server(const PlayOptions& options = {})
      : service_(&factory_, options),
        server_({{v1::EnvService::service_full_name(), &service_}},
                [this] { service_.Shutdown(); }) {}
  std::shared_ptr<grpc::Channel> Channel() { return server_.Channel(); }
  void Shutdown() { service_.Shutdown(); }

 private:
  const Factory factory_;
  EnvService service_;
  InProcessServer server_;
};

// Another, with a defect in front.
class DefectiveServer {
 public:
  explicit DefectiveServer(std::function<Defect()> make)
      : service_(backend_.Channel(), std::move(make)),
        server_({{v1::EnvService::service_full_name(), &service_}}) {}
  // Streams that a defect keeps end with the backend's.
  ~DefectiveServer() { backend_.Shutdown(); }
  std::shared_ptr<grpc::Channel> Channel() { return server_.Channel(); }

 private:
  Server backend_;
  DefectiveService service_;
  InProcessServer server_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_ENV_CONFORMANCE_SERVERS_H_
