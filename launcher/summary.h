#ifndef FLOTILLA_LAUNCHER_SUMMARY_H_
#define FLOTILLA_LAUNCHER_SUMMARY_H_

#include <optional>
#include <string>

#include "flotilla/v1/config.pb.h"
#include "flotilla/v1/coordinator.pb.h"
#include "flotilla/v1/summary.pb.h"

namespace flotilla {

// A run's result for people. What there is not, is not spoken of.
std::string DescribeSummary(const v1::RunSummary& summary);

// What there is to say of a run that failed for `failure`: what rank 0 wrote in
// this run, if it did, and else what its coordinator knew last.
v1::RunSummary SummarizeFailure(const v1::RunConfig& config,
                                const std::optional<v1::RunSummary>& written,
                                const std::optional<v1::Status>& last,
                                const std::string& failure);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SUMMARY_H_
