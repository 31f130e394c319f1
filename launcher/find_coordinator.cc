#include "launcher/find_coordinator.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "launcher/run_record.h"
#include "launcher/runs.h"
#include "launcher/topology.h"

namespace flotilla {
namespace {

std::string AddressIn(const RunFolder& folder) {
  std::ifstream file(folder.coordinator_address());
  std::string address;
  std::getline(file, address);
  return address;
}

}  // namespace

std::string JournalEpoch(const RunFolder& folder) {
  std::ifstream journal(folder.coordinator_journal());
  for (std::string line; std::getline(journal, line) && line != "---";) {
    absl::string_view epoch = line;
    if (absl::ConsumePrefix(&epoch, "epoch: \"") &&
        absl::ConsumeSuffix(&epoch, "\"")) {
      return std::string(epoch);
    }
  }
  return "";
}

absl::StatusOr<RunAddress> FindCoordinator(
    const std::optional<std::string>& coordinator,
    const std::optional<std::string>& run_dir) {
  if (coordinator && run_dir) {
    return absl::InvalidArgumentError(
        "give --coordinator or --run-dir, not both");
  }
  if (coordinator) {
    const bool has_port = absl::StrContains(*coordinator, ":");
    return RunAddress{
        has_port ? *coordinator : absl::StrCat(*coordinator, ":", kDefaultPort),
        ""};
  }
  const std::string folder = run_dir.value_or(NewestRunPath(""));
  if (folder.empty()) {
    return RunAddress{absl::StrCat("127.0.0.1:", kDefaultPort), "", true};
  }
  if (!RunFolder(folder).HoldsRun()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--run-dir ", folder, " holds no run"));
  }
  return RunAddress{AddressIn(RunFolder(folder)), folder};
}

absl::Status ExplainSilence(const RunAddress& run, const absl::Status& error) {
  if (run.assumed && absl::IsUnavailable(error)) {
    return absl::UnavailableError(
        absl::StrCat("there is no run in runs/, and nothing answers at ",
                     run.address, ": name a RUN or --coordinator HOST:PORT"));
  }
  // Without an answer, a result tells that it ended rather than vanished.
  if (!run.run_dir.empty() && HasResult(RunFolder(run.run_dir))) {
    return absl::UnavailableError(
        absl::StrCat("the run in ", run.run_dir, " is over"));
  }
  return error;
}

RpcCredentials WithRunToken(const RpcCredentials& credentials,
                            const std::string& run_dir) {
  if (credentials.uses_token() || run_dir.empty()) return credentials;
  const std::string token = RunFolder(run_dir).token();
  if (access(token.c_str(), R_OK) != 0) return credentials;
  RpcCredentials result = credentials;
  result.token_file = token;
  return result;
}

absl::Status CheckSameRun(const RunAddress& run, const v1::Status& status) {
  if (run.run_dir.empty() || status.run_id().empty()) return absl::OkStatus();
  const RunFolder folder(run.run_dir);
  const bool same_name = status.run_id() == folder.name();
  const std::string epoch = JournalEpoch(folder);
  // A full disk leaves the journal as it was before the coordinator was replaced.
  if (same_name &&
      (epoch.empty() || epoch == status.epoch() || IsHeldHere(folder))) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "the run in ", run.run_dir, " is over; the coordinator at ", run.address,
      same_name ? " is of another run of that name"
                : absl::StrCat(" is of the run \"", status.run_id(), "\"")));
}

}  // namespace flotilla
