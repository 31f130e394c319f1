#include "launcher/watch/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// The alternate screen, without a cursor and without wrapping; and back.
constexpr char kBegin[] = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr char kEnd[] = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// Those that end a process with what it was doing.
constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};

termios g_before;                     // how the terminal was
std::atomic<bool> g_is_ours = false;  // it is to be given back
volatile sig_atomic_t g_resized = 0;
std::atomic<int> g_wake = -1;
struct sigaction g_previous[std::size(kFatal)], g_previous_winch;

// Only what a signal handler may call.
void GiveBack() {
  if (!g_is_ours.exchange(false)) return;
  [[maybe_unused]] ssize_t n = write(STDOUT_FILENO, kEnd, sizeof(kEnd) - 1);
  tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

void OnFatal(int signal) {
  GiveBack();
  for (size_t i = 0; i < std::size(kFatal); ++i) {
    if (kFatal[i] == signal) sigaction(signal, &g_previous[i], nullptr);
  }
  raise(signal);
}

void OnResize(int) {
  const int saved = errno;
  g_resized = 1;
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(g_wake.load(), &one, sizeof(one));
  errno = saved;
}

void WriteAll(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd entry = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      poll(&entry, 1, 1000);
      continue;
    }
    if (n <= 0) return;  // nobody looks any more
    done += static_cast<size_t>(n);
  }
}

}  // namespace

const char* CodeOf(ScreenLine::Style style) {
  const char* no_color = std::getenv("NO_COLOR");
  const bool colours = no_color == nullptr || *no_color == '\0';
  switch (style) {
    case ScreenLine::Style::kTitle:
      return "\x1b[1;7m";
    case ScreenLine::Style::kBold:
      return "\x1b[1m";
    case ScreenLine::Style::kDim:
      return "\x1b[2m";
    case ScreenLine::Style::kAlarm:
      return colours ? "\x1b[31m" : "\x1b[1m";
    case ScreenLine::Style::kChosen:
      return "\x1b[7m";
    case ScreenLine::Style::kPlain:
      break;
  }
  return "";
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = absl::AsciiStrToLower(value);
    return absl::StrContains(lower, "utf-8") ||
           absl::StrContains(lower, "utf8");
  }
  return false;
}

std::vector<int> ParseKeys(std::string* bytes) {
  static constexpr std::pair<const char*, int> kSequences[] = {
      {"[A", kKeyUp},   {"OA", kKeyUp},      {"[B", kKeyDown},
      {"OB", kKeyDown}, {"[5~", kKeyPageUp}, {"[6~", kKeyPageDown},
      {"[H", kKeyHome}, {"OH", kKeyHome},    {"[1~", kKeyHome},
      {"[F", kKeyEnd},  {"OF", kKeyEnd},     {"[4~", kKeyEnd},
  };
  std::vector<int> keys;
  size_t at = 0;
  while (at < bytes->size()) {
    const char c = (*bytes)[at];
    if (c != '\x1b') {
      keys.push_back(c == '\r' || c == '\n' ? static_cast<int>(kKeyEnter)
                                            : static_cast<unsigned char>(c));
      ++at;
      continue;
    }
    const std::string rest = bytes->substr(at + 1);
    const bool sequence = !rest.empty() && (rest[0] == '[' || rest[0] == 'O');
    if (!sequence) {
      keys.push_back(kKeyEscape);
      ++at;
      continue;
    }
    // Up to its last letter; unknown ones are passed over.
    size_t end = 1;
    while (end < rest.size() && !absl::ascii_isalpha(rest[end]) &&
           rest[end] != '~') {
      ++end;
    }
    if (end == rest.size()) {
      if (rest.size() < 16) break;  // more of it has to come
      at += 1;
      continue;
    }
    const std::string whole = rest.substr(0, end + 1);
    for (const auto& [text, key] : kSequences) {
      if (whole == text) keys.push_back(key);
    }
    at += 1 + whole.size();
  }
  bytes->erase(0, at);
  return keys;
}

bool Terminal::IsThere() {
  const char* term = std::getenv("TERM");
  const bool dumb =
      term == nullptr || *term == '\0' || std::string(term) == "dumb";
  return !dumb && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  std::unique_ptr<Terminal> terminal(new Terminal);
  terminal->wake_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (terminal->wake_.get() < 0) {
    return absl::ErrnoToStatus(errno, "cannot make an eventfd");
  }
  if (tcgetattr(STDIN_FILENO, &g_before) != 0) {
    return absl::ErrnoToStatus(errno, "cannot read the terminal's settings");
  }
  g_wake = terminal->wake_.get();
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = OnFatal;
  for (size_t i = 0; i < std::size(kFatal); ++i) {
    sigaction(kFatal[i], &action, &g_previous[i]);
  }
  action.sa_handler = OnResize;
  action.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &action, &g_previous_winch);
  termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  // To come back from a suspended screen takes a shell that knows of it.
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  g_is_ours = true;
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
    g_is_ours = false;
    return absl::ErrnoToStatus(errno, "cannot set the terminal");
  }
  WriteAll(kBegin);
  terminal->TakeSize();
  return terminal;
}

Terminal::~Terminal() {
  GiveBack();
  if (g_wake.exchange(-1) < 0) return;
  for (size_t i = 0; i < std::size(kFatal); ++i) {
    sigaction(kFatal[i], &g_previous[i], nullptr);
  }
  sigaction(SIGWINCH, &g_previous_winch, nullptr);
}

void Terminal::TakeSize() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > 0) columns_ = size.ws_col;
  if (size.ws_row > 0) rows_ = size.ws_row;
}

void Terminal::Draw(const std::vector<ScreenLine>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size() && i < rows_; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "\r\n", CodeOf(lines[i].style),
                    lines[i].text, "\x1b[0m\x1b[K");
  }
  absl::StrAppend(&text, "\x1b[J");
  WriteAll(text);
}

std::vector<int> Terminal::AwaitKeys(absl::Duration timeout, bool* closed) {
  *closed = false;
  pollfd entries[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                      {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  poll(entries, 2,
       static_cast<int>(
           std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, 60'000)));
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  if (g_resized != 0) {
    g_resized = 0;
    TakeSize();
  }
  if (entries[0].revents == 0) return {};
  char bytes[256];
  const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
  const bool over = n < 0 ? errno != EINTR && errno != EAGAIN
                          : n == 0 && (entries[0].revents & POLLHUP) != 0;
  *closed = over;
  if (n > 0) pending_.append(bytes, static_cast<size_t>(n));
  return ParseKeys(&pending_);
}

void Terminal::Wake() { eventfd_write(wake_.get(), 1); }

}  // namespace flotilla
