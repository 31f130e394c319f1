#ifndef FLOTILLA_ENVSERVER_REGISTRY_H_
#define FLOTILLA_ENVSERVER_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/batch_environment.h"
#include "envserver/environment.h"
#include "envserver/environment_arguments.h"
#include "flotilla/v1/config.pb.h"
#include "services/env/vector_env.h"

namespace flotilla {

// Makes one environment, be it an Environment or one of several agents. Errors:
// kInvalidArgument naming the option whose value does not fit; kFailedPrecondition,
// with the remedy, if this build or machine lacks what it needs.
using EnvironmentMaker =
    std::function<absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>>(
        const EnvironmentArguments&)>;

// The same of so many that step together.
using BatchMaker =
    std::function<absl::StatusOr<std::unique_ptr<BatchEnvironment>>(
        const EnvironmentArguments&, size_t environments)>;

// Whether rows are worth threads: a step takes much longer than waking one.
enum class StepCost { kCheap, kHeavy };

// The environments of a server, by id: those that come with Flotilla, and yours.
//
//   EnvironmentRegistry registry;
//   registry.Add("Mine-v0",
//                [](const EnvironmentArguments& arguments) {
//                  return std::make_unique<Mine>(arguments.Int("size"));
//                },
//                {{"size", 8, "cells a side"}});
//
// Thread-safe once all are added: makers are called from many threads.
class EnvironmentRegistry {
 public:
  EnvironmentRegistry();

  // `env_id` has to be new. The options are what env.options.kwargs may hold;
  // a specification need not repeat them, nor the id.
  void Add(const std::string& env_id, EnvironmentMaker make,
           std::vector<EnvironmentOption> options = {},
           StepCost cost = StepCost::kCheap);
  void AddBatch(const std::string& env_id, BatchMaker make,
                std::vector<EnvironmentOption> options = {});

  // Every id that Make takes, sorted.
  std::vector<std::string> List() const;

  // For `worker_id`. The environment's specification is what it says itself:
  // neither the options nor another step limit.
  // Errors: kNotFound, naming the nearest id, if there is no such environment;
  // kInvalidArgument naming the option that does not fit; those of its maker.
  absl::StatusOr<std::unique_ptr<MultiAgentEnvironment>> Make(
      const std::string& env_id, const v1::EnvOptions& options,
      uint64_t worker_id) const;

  // Whether it was added by AddBatch.
  bool IsBatch(const std::string& env_id) const;

  // So many of one that IsBatch, which step together. Errors: as Make.
  absl::StatusOr<std::unique_ptr<BatchEnvironment>> MakeBatch(
      const std::string& env_id, const v1::EnvOptions& options,
      uint64_t worker_id, size_t environments) const;

  // What the registry and `options` add to the specification of `env_id`.
  // Errors: kNotFound, as Make.
  absl::StatusOr<v1::EnvSpec> Stated(const std::string& env_id,
                                     const v1::EnvOptions& options) const;

  // kCheap if there is no such environment.
  StepCost CostOf(const std::string& env_id) const;

 private:
  struct Entry {
    EnvironmentMaker make;
    std::vector<EnvironmentOption> options;
    StepCost cost;
    std::string part;  // of EnvOptions, that it reads; "": none
    BatchMaker make_batch = nullptr;
  };

  void AddOurs(const std::string& env_id, EnvironmentMaker make,
               const std::string& part);
  absl::StatusOr<const Entry*> Find(const std::string& env_id) const;
  // What `entry` is made from. Errors: those of Make but its maker's.
  static absl::StatusOr<EnvironmentArguments> ArgumentsOf(
      const Entry& entry, const std::string& env_id,
      const v1::EnvOptions& options, uint64_t worker_id);

  std::map<std::string, Entry> entries_;
  Entry atari_;  // every game of the emulator
};

// Makes the registry's environments in rows of ThreadVectorEnv, those that step
// together in a BatchVectorEnv, and gym: ones behind a GymVectorEnv.
//
// Thread-safe.
class RegistryFactory final : public VectorEnvFactory {
 public:
  // `registry` must outlive this. `threads` step the rows of a stream where that
  // pays; at least 1. What is done with environments that failed, gym: ones too:
  // see ThreadVectorEnv::Options.
  RegistryFactory(const EnvironmentRegistry* registry, int threads,
                  absl::Duration retry_wait = absl::ZeroDuration(),
                  bool renew_failed = false)
      : registry_(registry),
        threads_(threads),
        retry_wait_(retry_wait),
        renew_failed_(renew_failed) {}

  std::vector<std::string> ListEnvironments() const override;
  absl::StatusOr<v1::EnvSpec> Describe(
      const std::string& env_id, const v1::EnvOptions& options) const override;
  absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const override;
  absl::StatusOr<std::unique_ptr<VectorEnv>> MakeReplay(
      const std::string& env_id, const v1::EnvOptions& options,
      std::vector<uint64_t> seeds, bool frames,
      VectorEnv::Listener* listener) const override;

 private:
  const EnvironmentRegistry* const registry_;
  const int threads_;
  const absl::Duration retry_wait_;
  const bool renew_failed_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_REGISTRY_H_
