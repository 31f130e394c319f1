#include "services/base/config_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/config_ranges.h"
#include "services/base/device_choice.h"
#include "services/base/either_field.h"
#include "services/base/json.h"
#include "services/base/nearest_name.h"

namespace flotilla {
namespace {

constexpr char kAtariPrefix[] = "ALE/";
constexpr char kAtariSuffix[] = "-v5";
constexpr char kGymPrefix[] = "gym:";

using Problems = std::vector<ConfigProblem>;

// The multiples of `unit` around `value`, as a remedy: "use 8 or 12".
std::string NearbyMultiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below == 0) return absl::StrCat("use ", unit);
  return absl::StrCat("use ", below, " or ", below + unit);
}

bool IsAtariName(const std::string& name) {
  return !name.empty() && absl::ascii_isupper(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c); });
}

std::string AtariProblem(const std::string& env_id) {
  const std::string rest = env_id.substr(sizeof(kAtariPrefix) - 1);
  if (absl::EndsWith(rest, kAtariSuffix) &&
      IsAtariName(rest.substr(0, rest.size() - 3))) {
    return "";
  }
  return absl::StrCat("is \"", env_id,
                      "\"; an Atari game is written ALE/<Game>-v5, as in "
                      "ALE/Breakout-v5");
}

std::string GymProblem(const std::string& env_id) {
  const std::vector<std::string> parts = absl::StrSplit(env_id, ':');
  const bool whole =
      std::none_of(parts.begin(), parts.end(),
                   [](const std::string& part) { return part.empty(); });
  if (whole && parts.size() <= 3) return "";
  return absl::StrCat("is \"", env_id,
                      "\"; a Gymnasium environment is written gym:ID or "
                      "gym:package:ID, as in gym:Acrobot-v1");
}

// Atari ids of older Gym versions: BreakoutNoFrameskip-v4, Breakout-v5.
std::string AtariGuess(const std::string& env_id) {
  const std::string name = env_id.substr(0, env_id.find('-'));
  const std::string game = name.substr(0, name.find("NoFrameskip"));
  const bool versioned =
      absl::EndsWith(env_id, "-v4") || absl::EndsWith(env_id, "-v5");
  if (!versioned || !IsAtariName(game)) return "";
  return absl::StrCat(kAtariPrefix, game, kAtariSuffix);
}

// JSON, or else a string: 8x8. But not what was meant to be JSON.
void CheckGymArguments(const v1::EnvOptions& options, Problems* problems) {
  constexpr std::pair<const char*, const char*> kPythonWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (const auto& [name, value] : options.gym_kwargs()) {
    const std::string path = absl::StrCat("env.options.gym_kwargs.", name);
    const bool json = ParseJson(value).ok();
    Require(
        json || value.find_first_of("[{\"") != 0, path,
        absl::StrCat("is ", value, ", which begins as JSON does and is none"),
        problems);
    for (const auto& [python, word] : kPythonWords) {
      Require(value != python, path,
              absl::StrCat("is ", value, "; JSON says ", word), problems);
    }
  }
}

void CheckOptions(const std::string& env_id, const v1::EnvOptions& options,
                  Problems* problems) {
  const std::string fits = EnvOptionsPart(env_id);
  const std::pair<std::string, bool> parts[] = {
      {"atari", options.has_atari()},
      {"sleep", options.has_sleep()},
      {"maze", options.has_maze()},
      {"gym_kwargs", !options.gym_kwargs().empty()}};
  for (const auto& [part, set] : parts) {
    Require(
        !set || part == fits, "env.options." + part,
        absl::StrCat("is set, but ", env_id, " does not read it",
                     fits.empty() ? "" : " (it reads env.options." + fits + ")",
                     "; remove it"),
        problems);
  }
  if (fits == "gym_kwargs") CheckGymArguments(options, problems);
}

void CheckEnv(const v1::EnvConfig& env, Problems* problems) {
  const std::string id_problem = EnvIdProblem(env.id());
  Require(id_problem.empty(), "env.id", id_problem, problems);
  const int64_t unit = int64_t{env.num_workers()} * env.groups();
  if (env.num_envs() > 0 && env.num_workers() > 0 && env.groups() > 0) {
    Require(env.num_envs() % unit == 0, "env.num_envs",
            absl::StrCat("is ", env.num_envs(),
                         ", not divisible by env.num_workers * env.groups = ",
                         env.num_workers(), " * ", env.groups(), "; ",
                         NearbyMultiples(env.num_envs(), unit)),
            problems);
  }
  if (id_problem.empty()) CheckOptions(env.id(), env.options(), problems);
  Require(env.remote_workers() <= env.num_workers(), "env.remote_workers",
          absl::StrCat("is ", env.remote_workers(),
                       "; it must be at most env.num_workers = ",
                       env.num_workers(), ", of which they are a part"),
          problems);
}

void CheckModel(const v1::ModelConfig& model, Problems* problems) {
  const bool cnn =
      model.encoder() == v1::NATURE_CNN || model.encoder() == v1::RESNET;
  // With leaves of their own it is what they are merged through.
  Require(!cnn || model.hidden_size() <= 1 || model.leaf_size() > 0,
          "model.hidden",
          absl::StrCat("has ", model.hidden_size(), " widths; ",
                       v1::Encoder_Name(model.encoder()),
                       " takes one, of its last linear layer"),
          problems);
  const int channels = model.conv_channels_size();
  Require(channels == 0 || channels == 3, "model.conv_channels",
          absl::StrCat("has ", channels,
                       " widths; NATURE_CNN has three convolutions: use "
                       "[32, 64, 64]"),
          problems);
  Require(channels == 0 || model.encoder() == v1::NATURE_CNN ||
              model.encoder() == v1::ENCODER_AUTO,
          "model.conv_channels",
          absl::StrCat("is set, but model.encoder ",
                       v1::Encoder_Name(model.encoder()),
                       " does not read it; remove it"),
          problems);
  Require(model.torchscript().empty() || model.recurrent() == v1::NONE,
          "model.recurrent",
          absl::StrCat("is ", v1::RecurrentCell_Name(model.recurrent()),
                       ", but model.torchscript brings a whole network, and "
                       "none with memory is supported yet; use NONE"),
          problems);
}

void CheckEvaluation(const v1::EvaluationConfig& evaluation,
                     Problems* problems) {
  Require(!evaluation.has_stop_return() || evaluation.every_updates() != 0,
          "evaluation.stop_return",
          absl::StrCat("is ", evaluation.stop_return(),
                       ", but nothing is ever evaluated; set "
                       "evaluation.every_updates too"),
          problems);
  Require(!evaluation.at_start() || (evaluation.every_updates() != 0 &&
                                     !evaluation.has_min_training_return()),
          "evaluation.at_start",
          "is true, which needs evaluation.every_updates above 0 and no "
          "evaluation.min_training_return",
          problems);
}

void CheckCheckpoint(const v1::RunConfig& config, Problems* problems) {
  const AlgorithmTraits& algorithm = TraitsOf(config);
  Require(
      !config.checkpoint().replay() || algorithm.ReplayOf(config).capacity > 0,
      "checkpoint.replay",
      absl::StrCat("is true, but ", algorithm.name(),
                   " keeps no replay; remove it"),
      problems);
}

void CheckDistributed(const v1::DistributedConfig& distributed,
                      Problems* problems) {
  const std::string at = "distributed.";
  Require(distributed.dead_after_seconds() > distributed.heartbeat_seconds(),
          at + "dead_after_seconds",
          absl::StrCat("is ", distributed.dead_after_seconds(),
                       "; it must be above distributed.heartbeat_seconds = ",
                       distributed.heartbeat_seconds(),
                       ", or everyone would be declared dead"),
          problems);
}

bool IsDevice(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  if (device == kRehearsalDevice) return true;  // flotilla-learner refuses it
  int index = -1;
  return absl::StartsWith(device, "cuda:") &&
         absl::SimpleAtoi(device.substr(5), &index) && index >= 0;
}

void CheckRuntime(const v1::RuntimeConfig& runtime, Problems* problems) {
  Require(IsDevice(runtime.device()), "runtime.device",
          absl::StrCat("is \"", runtime.device(),
                       "\"; use auto, cpu, cuda or cuda:N"),
          problems);
}

}  // namespace

const std::vector<std::string>& NativeEnvIds() {
  static const auto& ids = *new std::vector<std::string>{
      "CartPole-v1", "Pendulum-v1", "Sleep", "Maze"};
  return ids;
}

bool IsGym(const std::string& env_id) {
  return absl::StartsWith(env_id, kGymPrefix);
}

std::string EnvOptionsPart(const std::string& env_id) {
  if (absl::StartsWith(env_id, kAtariPrefix)) return "atari";
  if (IsGym(env_id)) return "gym_kwargs";
  if (env_id == "Sleep") return "sleep";
  if (env_id == "Maze") return "maze";
  return "";
}

std::string EnvIdProblem(const std::string& env_id) {
  const std::vector<std::string>& native = NativeEnvIds();
  if (std::find(native.begin(), native.end(), env_id) != native.end()) {
    return "";
  }
  if (absl::StartsWith(env_id, kAtariPrefix)) return AtariProblem(env_id);
  if (IsGym(env_id)) return GymProblem(env_id);
  std::string meant = NearestName(env_id, native);
  if (meant.empty()) meant = AtariGuess(env_id);
  return absl::StrCat(
      "is \"", env_id, "\", which does not exist",
      meant.empty() ? "" : absl::StrCat("; did you mean \"", meant, "\"?"),
      " (`flotilla envs` lists them; gym:", env_id, " asks Gymnasium for it)");
}

std::vector<ConfigProblem> FindProblems(const v1::RunConfig& config) {
  Problems problems = FindBothSet(config);
  FindOutOfRange(config, &problems);
  CheckEnv(config.env(), &problems);
  CheckModel(config.model(), &problems);
  TraitsOf(config).FindProblems(config, &problems);
  CheckEvaluation(config.evaluation(), &problems);
  CheckCheckpoint(config, &problems);
  CheckDistributed(config.distributed(), &problems);
  Require(
      config.distributed().preemption_fraction() == 0 ||
          !config.runtime().deterministic(),
      "distributed.preemption_fraction",
      absl::StrCat("is ", config.distributed().preemption_fraction(),
                   ", which lets the clock decide how long rollouts are; set "
                   "runtime.deterministic=false too"),
      &problems);
  Require(config.distributed().preemption_fraction() == 0 ||
              CollectionOf(config) == Collection::kWhenAsked,
          "distributed.preemption_fraction",
          absl::StrCat("is ", config.distributed().preemption_fraction(),
                       ", but impala and rollout.overlap_one_update collect "
                       "ahead of the learner, and nobody is cut short; use 0"),
          &problems);
  CheckRuntime(config.runtime(), &problems);
  return problems;
}

}  // namespace flotilla
