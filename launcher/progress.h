#ifndef FLOTILLA_LAUNCHER_PROGRESS_H_
#define FLOTILLA_LAUNCHER_PROGRESS_H_

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// What of a run's progress does not come from its coordinator.
struct ProgressFacts {
  std::string name;             // of the run
  int64_t total_env_steps = 0;  // 0: not known
  int64_t steps_an_update = 0;  // of all learners; 0: not known
  int64_t first_step = 0;       // where a resumed run goes on
  int64_t first_update = 0;
};

// One line, for logs:
//   "43% 215,040 / 500,000 steps  update 105  3.2k steps/s  return 187.3 ..."
std::string ProgressLine(const v1::Status& status, const ProgressFacts& facts);

// A bar, what is measured, and a line for each rank, none wider than `width`,
// for a terminal.
std::vector<std::string> ProgressBlock(const v1::Status& status,
                                       const ProgressFacts& facts,
                                       size_t width);

// "change 1: ppo.epochs=2, from update 31 on"
std::string ChangeLine(const v1::Change& change);

// Everything, for `flotilla status`. Lines that are wider than `width` go on
// below, indented.
std::string StatusText(const v1::Status& status, size_t width);

enum class ProgressMode { kBar, kPlain, kNone };

// "auto", "plain" or "none"; auto is a bar if `out` is a terminal.
ProgressMode ChooseProgressMode(const std::string& flag, std::FILE* out);

// Shows progress on `out`: a block that is redrawn in place, or a line now and
// then; lines that others say go above the block.
//
// Not thread-safe.
class ProgressPrinter {
 public:
  ProgressPrinter(ProgressMode mode, const ProgressFacts& facts,
                  std::FILE* out);
  ~ProgressPrinter();  // leaves the last block standing

  // Call it often; it decides how often to show.
  void Show(const std::optional<v1::Status>& status, absl::Time now);

  // Says `line` above the progress.
  void Say(const std::string& line);

  // Shows `status`, the last there is, whatever was shown a moment ago.
  void Finish(const std::optional<v1::Status>& status);

 private:
  void EraseBlock();
  void DrawBlock();

  const ProgressMode mode_;
  const ProgressFacts facts_;
  std::FILE* const out_;
  std::optional<v1::Status> latest_;
  absl::Time next_ = absl::InfinitePast();
  size_t drawn_lines_ = 0;
  std::string last_line_;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_PROGRESS_H_
