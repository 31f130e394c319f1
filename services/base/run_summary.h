#ifndef FLOTILLA_SERVICES_BASE_RUN_SUMMARY_H_
#define FLOTILLA_SERVICES_BASE_RUN_SUMMARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/summary.pb.h"

// RUN/summary.json; proto/flotilla/v1/summary.proto says what is in it.

namespace flotilla {

// As the file has it.
std::string FormatRunSummary(const v1::RunSummary& summary);

// Writes `path` whole or not at all. Errors: WriteFileAtomically's.
absl::Status WriteRunSummary(const std::string& path,
                             const v1::RunSummary& summary);

// Errors: kNotFound, or kDataLoss if it is not a summary, naming the file.
absl::StatusOr<v1::RunSummary> ReadRunSummary(const std::string& path);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_RUN_SUMMARY_H_
