#ifndef FLOTILLA_LAUNCHER_RUN_LIST_H_
#define FLOTILLA_LAUNCHER_RUN_LIST_H_

#include <string>
#include <vector>

#include "launcher/run_record.h"

namespace flotilla {

// By what runs can be sorted; the first is the default.
inline const char* const kRunOrders[] = {"name", "score", "steps", "time",
                                         "newest"};

// By name from a to z; the highest score, the most steps, the longest and the
// newest first, and what has none last.
void SortRuns(const std::string& order, std::vector<RunRecord>* runs);

// A line for each run, below titles, cut at `width` (0: never), then by what is
// known that a run has not ended.
std::string RunTable(const std::vector<RunRecord>& runs, size_t width);

// A list with an object for each run.
std::string RunsAsJson(const std::vector<RunRecord>& runs);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_RUN_LIST_H_
