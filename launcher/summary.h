#ifndef FLOTILLA_LAUNCHER_SUMMARY_H_
#define FLOTILLA_LAUNCHER_SUMMARY_H_

#include <string>

#include "flotilla/v1/summary.pb.h"

namespace flotilla {

// A run's result for people. What there is not, is not spoken of.
std::string DescribeSummary(const v1::RunSummary& summary);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_SUMMARY_H_
