#include "services/base/run_summary.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "services/base/atomic_file.h"
#include "services/base/json.h"
#include "services/base/text_file.h"

namespace flotilla {

std::string FormatRunSummary(const v1::RunSummary& summary) {
  return FormatJson(MessageToJson(summary), /*indent=*/2) + "\n";
}

absl::Status WriteRunSummary(const std::string& path,
                             const v1::RunSummary& summary) {
  return WriteFileAtomically(path, FormatRunSummary(summary));
}

absl::StatusOr<v1::RunSummary> ReadRunSummary(const std::string& path) {
  const std::optional<std::string> text = WholeFile(path);
  if (!text) return absl::NotFoundError(absl::StrCat("there is no ", path));
  const absl::StatusOr<Json> json = ParseJson(*text);
  v1::RunSummary summary;
  const absl::Status read =
      json.ok() ? JsonToMessage(*json, &summary) : json.status();
  if (read.ok()) return summary;
  return absl::DataLossError(
      absl::StrCat(path, " is not a run's summary: ", read.message()));
}

}  // namespace flotilla
