#include <unistd.h>

#include <cstdio>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "launcher/commands/command.h"
#include "launcher/run_list.h"
#include "launcher/text_layout.h"

namespace flotilla {

int RunRuns(const Arguments& arguments) {
  std::string order = kRunOrders[0];
  bool json = false;
  CommandLine line(
      "flotilla runs [DIR...] [flags]",
      "Lists the runs in a folder (default: runs), and in what they differ "
      "from "
      "one another.\nNobody is asked: a run has ended if its summary.json says "
      "so, and goes on while\nsomebody on this host holds its .lock, or one of "
      "another host wrote its metrics\nwithin two minutes. The configuration "
      "is "
      "the nearest that comes with Flotilla.");
  line.Choice("--sort", {std::begin(kRunOrders), std::end(kRunOrders)},
              "the highest first, but for names (default)", &order);
  line.Switch("--json", "a list of objects", &json);
  const ParsedLine parsed =
      ParseLine("runs", arguments, arguments.size(), &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const std::vector<std::string> folders =
      parsed.positional.empty() ? std::vector<std::string>{"runs"}
                                : parsed.positional;
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    const auto found = FindRunFolders(folder);
    if (!found.ok()) return Report("runs", found.status());
    paths.insert(paths.end(), found->begin(), found->end());
  }
  KeepEachRunOnce(&paths);
  std::vector<RunRecord> runs;
  for (const std::string& path : paths) {
    runs.push_back(ReadRunRecord(path, absl::Now()));
  }
  SortRuns(order, &runs);
  if (json) {
    std::printf("%s", RunsAsJson(runs).c_str());
    return kExitDone;
  }
  if (runs.empty()) {
    std::fprintf(stderr, "there is no run in %s\n",
                 absl::StrJoin(folders, ", ").c_str());
    return kExitDone;
  }
  const size_t width = isatty(STDOUT_FILENO) != 0 ? TerminalWidth(stdout) : 0;
  std::printf("%s", RunTable(runs, width).c_str());
  std::fflush(stdout);
  for (const RunRecord& run : runs) {
    for (const std::string& note : run.notes) {
      std::fprintf(stderr, "flotilla runs: %s\n", note.c_str());
    }
  }
  return kExitDone;
}

}  // namespace flotilla
