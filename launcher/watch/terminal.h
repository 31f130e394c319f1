#ifndef FLOTILLA_LAUNCHER_WATCH_TERMINAL_H_
#define FLOTILLA_LAUNCHER_WATCH_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/watch/watch_view.h"
#include "services/base/owned_fd.h"

namespace flotilla {

// The whole screen of a terminal, for as long as this lives: the alternate one,
// without a cursor, and keys that come as they are pressed. However the process
// ends (but for SIGKILL), the terminal is given back as it was.
//
// One at a time in a process. Not thread-safe, but for Wake.
class Terminal {
 public:
  // Whether stdin and stdout are a terminal that can be drawn on.
  static bool IsThere();

  // Errors: of the system.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();

  size_t columns() const { return columns_; }
  size_t rows() const { return rows_; }

  void Draw(const std::vector<ScreenLine>& lines);

  // Blocks until keys are pressed, the size changes, Wake is called or `timeout`
  // has passed; returns the keys, which may be none. `closed` says that no more
  // can come.
  std::vector<int> AwaitKeys(absl::Duration timeout, bool* closed);

  // Ends an AwaitKeys, from any thread.
  void Wake();

 private:
  Terminal() = default;
  void TakeSize();

  size_t columns_ = 80, rows_ = 24;
  OwnedFd wake_;         // an eventfd
  std::string pending_;  // of a key that is several bytes
};

// The keys of what a terminal sends; takes from `bytes` what is whole.
std::vector<int> ParseKeys(std::string* bytes);

// What makes a terminal show a line so. Where NO_COLOR is set (https://no-color.org),
// nothing is coloured: what alarms is bold.
const char* CodeOf(ScreenLine::Style style);

// Whether the locale's encoding is UTF-8.
bool LocaleIsUtf8();

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_WATCH_TERMINAL_H_
