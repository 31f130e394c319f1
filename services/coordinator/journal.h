#ifndef FLOTILLA_SERVICES_COORDINATOR_JOURNAL_H_
#define FLOTILLA_SERVICES_COORDINATOR_JOURNAL_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/coordinator/roster.h"

namespace flotilla {

// The coordinator's journal: RosterState in a file, so that a restarted
// coordinator knows its run and never uses a generation number twice. Four
// messages in text format, one after the other.
std::string FormatJournal(const RosterState& state);

// What the file at `path` holds; nullopt if there is none.
// Errors: kDataLoss, with the remedy, if it does not read back, or no roster
// can have written it.
absl::StatusOr<std::optional<RosterState>> ReadJournal(const std::string& path);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_JOURNAL_H_
