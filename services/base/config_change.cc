#include "services/base/config_change.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/base/config.h"
#include "services/base/config_ranges.h"
#include "services/base/either_field.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"

namespace flotilla {
namespace {

// Read anew for each update, and of no size: what memory is set aside for, what
// other processes were told and what a network was made of stays.
constexpr const char* kChangeable[] = {
    "total_env_steps",
    "total_updates",
    "optimizer.learning_rate",
    "optimizer.schedule",
    "optimizer.epsilon",
    "optimizer.beta1",
    "optimizer.beta2",
    "optimizer.max_grad_norm",
    "optimizer.schedule_end",
    "ppo.discount",
    "ppo.gae_lambda",
    "ppo.clip_ratio",
    "ppo.value_clip",
    "ppo.entropy_cost",
    "ppo.value_cost",
    "ppo.epochs",
    "ppo.target_kl",
    "ppo.anneal_clip",
    "ppo.rho_clip",
    "ppo.c_clip",
    "ppo.priority_alpha",
    "ppo.priority_beta",
    "dqn.discount",
    "dqn.updates_per_rollout",
    "dqn.target_update_every",
    "dqn.epsilon_start",
    "dqn.epsilon_end",
    "dqn.epsilon_decay_steps",
    "dqn.huber",
    "dqn.priority_beta",
    "impala.discount",
    "impala.lambda",
    "impala.rho_clip",
    "impala.c_clip",
    "impala.pg_rho_clip",
    "impala.entropy_cost",
    "impala.value_cost",
    "impala.clip_ratio",
    "impala.epochs",
    "sac.discount",
    "sac.updates_per_rollout",
    "sac.tau",
    "sac.target_entropy",
    "sac.critic_learning_rate",
    "custom.options",
    "evaluation.every_updates",
    "evaluation.episodes",
    "evaluation.stop_return",
    "evaluation.min_training_return",
    "checkpoint.every_updates",
    "checkpoint.every_seconds",
    "checkpoint.keep",
    "distributed.digest_every_updates",
    "metrics.every_updates",
};

constexpr size_t kNamedBytes = 128;  // of an override, in an error

bool IsIn(const std::string& path, absl::string_view section) {
  return path == section || absl::StartsWith(path, absl::StrCat(section, "."));
}

// A configuration that has the section of `path`, also of an algorithm.
v1::RunConfig WithSectionOf(const std::string& path) {
  v1::RunConfig config;
  const auto* field = v1::RunConfig::descriptor()->FindFieldByName(
      path.substr(0, path.find('.')));
  if (field != nullptr && field->message_type() != nullptr) {
    config.GetReflection()->MutableMessage(&config, field);
  }
  return config;
}

// Whoever shortens what it says has to come to the reason behind `text`.
absl::Status Apply(const std::string& text, v1::RunConfig* config) {
  const absl::Status applied = ApplyOverride(text, config);
  if (applied.ok()) return applied;
  absl::string_view message = applied.message();
  absl::ConsumePrefix(&message, "--set ");
  absl::ConsumePrefix(&message, text);
  return absl::Status(applied.code(),
                      absl::StrCat(PrintableLine(text, kNamedBytes), message));
}

// What `after` asks for that the run cannot begin to do in flight.
std::string WhyNotNow(const v1::RunConfig& before, const v1::RunConfig& after) {
  // Scaled rewards are divided by the deviation of a discounted return.
  if (after.model().normalize_rewards() &&
      Discount(before) != Discount(after)) {
    return absl::StrCat(
        AlgorithmName(after),
        ".discount cannot change in flight while model.normalize_rewards is "
        "true: what rewards are divided by was gathered with the discount of ",
        Discount(before));
  }
  const v1::EvaluationConfig& e = after.evaluation();
  if (e.has_stop_return() && !before.evaluation().has_stop_return() &&
      after.runtime().deterministic() && !e.stop_at_once() &&
      CollectionOf(after) != Collection::kFreeRunning) {
    return "evaluation.stop_return cannot come in flight to a deterministic "
           "run "
           "that began without one, for nobody waits for its verdicts: stop it "
           "and "
           "`flotilla train --resume RUN --set evaluation.stop_return=...`, or "
           "begin runs with evaluation.stop_at_once=true";
  }
  return "";
}

}  // namespace

std::vector<std::string> ChangeableFields() {
  return {std::begin(kChangeable), std::end(kChangeable)};
}

std::string WhyFixed(const std::string& path) {
  const bool changeable = std::any_of(
      std::begin(kChangeable), std::end(kChangeable), [&](const char* field) {
        return path == field ||
               (absl::StrContains(field, ".options") && IsIn(path, field));
      });
  if (changeable) return "";
  // A resumed run does not begin anew with a seed.
  if (path == "seed" || ShapesCheckpoints(path)) {
    return "cannot change within a run: start another";
  }
  return absl::StrCat(
      "cannot change in flight: stop the run and `flotilla train --resume RUN "
      "--set ",
      path, "=...`");
}

bool ShapesCheckpoints(const std::string& path) {
  return path == "env.id" || path == "optimizer.type" ||
         path == "dqn.dueling" || path == "selfplay.pool_size" ||
         IsIn(path, "model");
}

std::string PathOf(const std::string& override_text) {
  return std::string(absl::StripAsciiWhitespace(
      absl::string_view(override_text).substr(0, override_text.find('='))));
}

absl::Status CheckChange(const std::vector<std::string>& overrides) {
  if (overrides.empty()) {
    return absl::InvalidArgumentError(
        "nothing is to be changed: say FIELD=VALUE, as "
        "optimizer.learning_rate=1e-4");
  }
  for (const std::string& text : overrides) {
    const std::string path = PathOf(text);
    v1::RunConfig config = WithSectionOf(path);
    RETURN_IF_ERROR(Apply(text, &config));
    const std::string why = WhyFixed(path);
    if (!why.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, " ", why));
    }
    std::vector<ConfigProblem> problems;
    FindOutOfRange(config, &problems);
    for (const ConfigProblem& problem : problems) {
      return absl::InvalidArgumentError(
          absl::StrCat(problem.path, " ", problem.message));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RunConfig> Changed(
    const v1::RunConfig& config, const std::vector<std::string>& overrides) {
  RETURN_IF_ERROR(CheckChange(overrides));
  v1::RunConfig after = config;
  MakeWay(overrides, &after);
  for (const std::string& text : overrides) {
    RETURN_IF_ERROR(Apply(text, &after));
  }
  RETURN_IF_ERROR(Validate(after));
  const std::string why = WhyNotNow(config, after);
  if (!why.empty()) return absl::UnimplementedError(why);
  return after;
}

bool ChangesLearning(const v1::RunConfig& before, const v1::RunConfig& after) {
  const auto of_learning = [](v1::RunConfig config) {
    config.clear_evaluation();
    config.clear_checkpoint();
    config.clear_metrics();
    config.clear_distributed();
    return config;
  };
  return !google::protobuf::util::MessageDifferencer::Equals(
      of_learning(before), of_learning(after));
}

}  // namespace flotilla
