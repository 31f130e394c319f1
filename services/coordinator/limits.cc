#include "services/coordinator/limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/printable.h"
#include "services/base/status_macros.h"
#include "services/coordinator/change_list.h"

namespace flotilla {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxWordsBytes = 1024;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxMemberBytes = 2 << 10;
constexpr size_t kMaxEvaluationBytes = 64 << 10;
constexpr size_t kMaxEnvWorkerBytes = 1 << 10;
constexpr int64_t kMaxRestarts = 1'000'000'000;

absl::Status CheckRestarts(const std::string& field, int64_t restarts) {
  if (restarts >= 0 && restarts <= kMaxRestarts) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", restarts, ", want 0 to ", kMaxRestarts));
}

absl::Status CheckFinite(const std::string& field, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", want a finite number"));
}

bool IsShortWord(const std::string& text) {
  return text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(c); });
}

}  // namespace

std::string Shortened(const std::string& words) {
  constexpr size_t kTail = 40;  // "... (N bytes in all)", at most
  return PrintableText(words, kMaxWordsBytes - kTail);
}

absl::Status CheckMember(const v1::Member& member) {
  const std::string& id = member.id();
  if (id.empty() || id.size() > kMaxIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("member.id has ", id.size(), " bytes, want 1 to ",
                     kMaxIdBytes, " (\"learner/NODE/LOCAL\")"));
  }
  if (!std::all_of(id.begin(), id.end(),
                   [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::InvalidArgumentError(
        "member.id holds other than printable ASCII without spaces "
        "(\"learner/NODE/LOCAL\")");
  }
  if (member.role() != v1::LEARNER && member.role() != v1::ENV_SERVER) {
    return absl::InvalidArgumentError(
        absl::StrCat(id, ": member.role is ", member.role(),
                     ", want LEARNER or ENV_SERVER"));
  }
  if (member.dials() && member.role() != v1::ENV_SERVER) {
    return absl::InvalidArgumentError(
        absl::StrCat(id, ": member.dials is set, want env servers alone to"));
  }
  RETURN_IF_ERROR(
      CheckRestarts(absl::StrCat(id, ": member.restarts"), member.restarts()));
  const std::pair<const char*, const std::string*> names[] = {
      {"address", &member.address()},
      {"host", &member.host()},
      {"device", &member.device()},
      {"version", &member.version()},
      {"config_digest", &member.config_digest()},
      {"run_id", &member.run_id()}};
  for (const auto& [field, name] : names) {
    if (name->size() <= kMaxNameBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(id, ": member.", field, " has ", name->size(),
                     " bytes, want at most ", kMaxNameBytes));
  }
  if (member.ByteSizeLong() > kMaxMemberBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(id, ": member has ", member.ByteSizeLong(),
                     " bytes, want at most ", kMaxMemberBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckHeartbeat(const v1::Heartbeat& heartbeat) {
  RETURN_IF_ERROR(CheckRestarts("heartbeat.env_worker_restarts",
                                heartbeat.env_worker_restarts()));
  RETURN_IF_ERROR(
      CheckRestarts("heartbeat.failed_rows", heartbeat.failed_rows()));
  RETURN_IF_ERROR(
      CheckFinite("heartbeat.steps_per_second", heartbeat.steps_per_second()));
  RETURN_IF_ERROR(
      CheckFinite("heartbeat.phase_seconds", heartbeat.phase_seconds()));
  RETURN_IF_ERROR(
      CheckFinite("heartbeat.mean_return", heartbeat.mean_return()));
  RETURN_IF_ERROR(CheckAgreed(heartbeat.change()));
  const size_t workers = static_cast<size_t>(heartbeat.env_worker_size());
  if (workers > kMaxEnvWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat.env_worker has ", workers,
                     " workers, want at most ", kMaxEnvWorkers));
  }
  for (const v1::EnvServerStatus& worker : heartbeat.env_worker()) {
    RETURN_IF_ERROR(CheckFinite("heartbeat.env_worker.steps_per_second",
                                worker.steps_per_second()));
    if (worker.ByteSizeLong() <= kMaxEnvWorkerBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat.env_worker \"", PrintableLine(worker.id(), 32), "\" has ",
        worker.ByteSizeLong(), " bytes, want at most ", kMaxEnvWorkerBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckDialAddress(const std::string& address) {
  if (IsShortWord(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dial_address has ", address.size(), " bytes, want at most ",
      kMaxNameBytes, " of printable ASCII without spaces (HOST:PORT)"));
}

absl::Status CheckLeaseId(const std::string& id) {
  if (id.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "lease_id has ", id.size(), " bytes, want at most ", kMaxNameBytes));
}

absl::Status CheckLayoutDigest(const std::string& digest) {
  if (IsShortWord(digest)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layout_digest has ", digest.size(), " bytes, want at most ",
                   kMaxNameBytes, " of printable ASCII without spaces"));
}

absl::Status CheckEvaluation(const v1::Evaluation& evaluation) {
  if (evaluation.round() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation.round is ", evaluation.round(), ", want 1 or more"));
  }
  if (evaluation.ByteSizeLong() > kMaxEvaluationBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation has ", evaluation.ByteSizeLong(),
                     " bytes, want at most ", kMaxEvaluationBytes));
  }
  RETURN_IF_ERROR(
      CheckFinite("evaluation.mean_return", evaluation.mean_return()));
  RETURN_IF_ERROR(
      CheckFinite("evaluation.min_return", evaluation.min_return()));
  RETURN_IF_ERROR(
      CheckFinite("evaluation.max_return", evaluation.max_return()));
  RETURN_IF_ERROR(
      CheckFinite("evaluation.mean_length", evaluation.mean_length()));
  for (const auto& [name, mean] : evaluation.mean_metric()) {
    RETURN_IF_ERROR(CheckFinite(absl::StrCat("evaluation.mean_metric \"",
                                             PrintableLine(name, 64), "\""),
                                mean));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
