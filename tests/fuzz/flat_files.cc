// What is read back from a run's folder: the coordinator's journal and the flat
// JSON of a summary. The first byte says which; the rest is the file.

#include <glog/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/json.h"
#include "services/coordinator/journal.h"
#include "services/coordinator/roster.h"

namespace flotilla {
namespace {

void Journal(const std::string& text) {
  const int fd = memfd_create("journal", MFD_CLOEXEC);
  CHECK_GE(fd, 0);
  CHECK_EQ(write(fd, text.data(), text.size()),
           static_cast<ssize_t>(text.size()));
  const auto state = ReadJournal(absl::StrCat("/proc/self/fd/", fd));
  close(fd);
  if (!state.ok()) {
    CHECK(absl::IsDataLoss(state.status())) << state.status();
    return;
  }
  CHECK(state->has_value());
  RosterOptions options;
  options.min_learners = 2;
  options.max_learners = 4;
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  Roster roster(options, start);
  roster.Restore(**state, start);
  for (int second = 0; second < 100; second += 9) {
    roster.Tick(start + absl::Seconds(second));
    const v1::Status status = roster.GetStatus(start + absl::Seconds(second));
    std::set<int> ranks;
    for (const v1::LearnerStatus& learner : status.learner()) {
      CHECK_LT(learner.rank(), status.world_size());
      CHECK(learner.rank() < 0 || ranks.insert(learner.rank()).second);
    }
    FormatJournal(roster.State());
  }
}

void FlatJson(const std::string& text) {
  const auto members = ParseFlatJson(text);
  if (!members.ok()) {
    CHECK(absl::IsInvalidArgument(members.status())) << members.status();
    return;
  }
  const auto again = ParseFlatJson(FormatFlatJson(*members));
  CHECK(again.ok()) << again.status();
  CHECK(*again == *members);
}

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    flotilla::Journal(text);
  } else {
    flotilla::FlatJson(text);
  }
  return 0;
}
