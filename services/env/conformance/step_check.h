#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_STEP_CHECK_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_STEP_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/conformance/findings.h"
#include "services/env/conformance/trace.h"
#include "services/env/group_layout.h"

namespace flotilla {

// What only many streams together tell.
struct Tally {
  int ends = 0;               // of episodes
  int finals_like_start = 0;  // whose final_observation starts the next, too
  std::optional<size_t> start;
  bool starts_differ = false;
  int terminated = 0;
  int terminated_reported = 0;  // with an EpisodeEnd
  int errors = 0;
};

// What env.proto says of the steps of one stream, but for whose turn it is. It
// follows every row, and keeps what it saw.
//
// Reads nothing beyond what came, whatever came. Not thread-safe.
class StepCheck {
 public:
  // Arguments must outlive this. `spec` has been checked: `layout` is of it.
  StepCheck(const v1::EnvSpec& spec, const GroupLayout& layout,
            Findings* findings, Tally* tally);

  // Looks at the next step of a group, which is in range. `observation`: per
  // leaf, [R, ...], of the right sizes. False: it cannot be read, and the
  // stream is not worth going on with.
  bool Check(const v1::StepBatch& step,
             const std::vector<std::string>& observation);

  const Trace& trace() const { return trace_; }

 private:
  struct Row {
    bool active = true;            // by the last step
    bool gone = false;             // its environment's episode goes on
    int64_t steps = 0;             // in its environment's episode
    int64_t game_steps = 0;        // its own, since the last game's end
    double game_return = 0;        // likewise
    int unreported = 0;            // ends since the last EpisodeEnd
    int64_t first_unreported = 0;  // steps of the first of them
  };

  bool CheckSizes(const v1::StepBatch& step);
  bool CheckFinals(const v1::StepBatch& step);
  void CheckErrors(const v1::StepBatch& step);
  void CheckEnds(const v1::StepBatch& step);
  // Who ended, who plays on; fills over_.
  void CheckAgents(const v1::StepBatch& step);
  void CheckEnvironment(const v1::StepBatch& step, int first);
  // `final`: of an observation that ended an episode; a mask in it may forbid
  // everything.
  void CheckValues(const std::string& where, int leaf, absl::string_view row,
                   bool final);
  void CheckMask(const std::string& where, int leaf, absl::string_view row);
  void Follow(const v1::StepBatch& step, int r,
              const std::vector<std::string>& observation);
  void FollowEnd(const v1::StepBatch& step, int r, RowStep* seen, Row* row);
  void CompareEnd(const v1::EpisodeEnd& end, const std::string& where,
                  Row* row);
  std::string Where(const v1::StepBatch& step, int r) const;

  const v1::EnvSpec& spec_;
  const GroupLayout& layout_;
  Findings& findings_;
  Tally& tally_;
  std::vector<Row> rows_;                   // over all groups
  std::vector<bool> failed_;                // [R], of this step
  std::vector<bool> over_;                  // [R], its environment's episode
  std::vector<const v1::EpisodeEnd*> end_;  // [R], of this step
  Trace trace_;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_STEP_CHECK_H_
