#ifndef FLOTILLA_LAUNCHER_SUMMARY_H_
#define FLOTILLA_LAUNCHER_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "flotilla/v1/summary.pb.h"

namespace flotilla {

// A run's result for people. What there is not, is not spoken of.
std::string DescribeSummary(const v1::RunSummary& summary);

// The newest number of each name in the end of a metrics.jsonl: of whole lines,
// and without those that are not finite. Empty if there is no such file.
using NewestMetrics = std::map<std::string, double>;
NewestMetrics ReadNewestMetrics(const std::string& path);

// The newest of one name, wherever it is in the last `look_back` bytes of the file: days
// of a fast run are gigabytes.
std::optional<double> FindNewestMetric(const std::string& path,
                                       const std::string& name,
                                       int64_t look_back = 64 << 20);

// What there is to say of a run that failed for `failure`, as people are told it:
// what rank 0 wrote in this run, if it did, and else what the coordinator knew
// last or the metrics say, whichever is newer.
v1::RunSummary SummarizeFailure(const v1::RunConfig& config,
                                const std::optional<v1::RunSummary>& written,
                                const std::optional<v1::Status>& last,
                                const NewestMetrics& metrics,
                                const std::string& failure);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SUMMARY_H_
