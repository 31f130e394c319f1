#ifndef FLOTILLA_SERVICES_BASE_COMMAND_LINE_H_
#define FLOTILLA_SERVICES_BASE_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace flotilla {

// The flags of a program or subcommand, as torchrun and GNU tools take them:
// `--flag value` and `--flag=value`, hyphens and underscores alike, flags and arguments
// in any order, everything after `--` an argument.
//
// Outputs are borrowed and must outlive Parse. Not thread-safe.
class CommandLine {
 public:
  struct Flag {
    std::string name;
    std::string value_name;  // "": a switch
    std::string help;
    std::function<absl::Status(const std::string&)> set;
    std::string bare;  // what a flag without its value means
    // Whether the next argument is the value; null: it always is.
    std::function<bool(const std::string&)> is_value;
    std::vector<std::string> aliases;
  };

  // `usage` is the line after "usage:", `about` what the program does.
  CommandLine(std::string usage, std::string about);

  // `--name`, also `--name=false`.
  void Switch(const std::string& name, const std::string& help, bool* out);

  // `--name value`. `value_name` is how help shows the value.
  void Text(const std::string& name, const std::string& value_name,
            const std::string& help, std::optional<std::string>* out);
  void Text(const std::string& name, const std::string& value_name,
            const std::string& help, std::string* out);

  // One of `choices`, in any case.
  void Choice(const std::string& name, const std::vector<std::string>& choices,
              const std::string& help, std::string* out);

  // An integer of at least `low`.
  void Int(const std::string& name, const std::string& value_name, int low,
           const std::string& help, std::optional<int>* out);
  void Int(const std::string& name, const std::string& value_name, int low,
           const std::string& help, int* out);
  void Int(const std::string& name, const std::string& value_name, int64_t low,
           const std::string& help, int64_t* out);

  // A finite number.
  void Number(const std::string& name, const std::string& value_name,
              const std::string& help, double* out);

  // May be given many times.
  void List(const std::string& name, const std::string& value_name,
            const std::string& help, std::vector<std::string>* out);

  // The same, for what is done with each value.
  void Each(const std::string& name, const std::string& value_name,
            const std::string& help,
            std::function<void(const std::string&)> take);

  // `--name`, which means `bare`, or `--name value`; the next argument is the
  // value only if `is_value` says so.
  void OptionalText(const std::string& name, const std::string& value_name,
                    const std::string& help, const std::string& bare,
                    std::function<bool(const std::string&)> is_value,
                    std::optional<std::string>* out);

  // Another spelling of `name` that help does not list.
  void Alias(const std::string& alias, const std::string& name);

  // Fills the outputs and returns the arguments that are no flags. When --help
  // or -h is among them, nothing else counts: see help_asked().
  // Errors: kInvalidArgument, naming the flag and the nearest known one.
  absl::StatusOr<std::vector<std::string>> Parse(
      const std::vector<std::string>& arguments);

  bool help_asked() const { return help_asked_; }
  std::string Help() const;

  const std::string& usage() const { return usage_; }
  const std::string& about() const { return about_; }
  const std::vector<Flag>& flags() const { return flags_; }
  // The flag that `name`, an alias or a spelling with underscores too, means;
  // null if there is none.
  const Flag* Find(std::string name) const;

 private:
  template <typename T>
  void AddInt(const std::string& name, const std::string& value_name, T low,
              const std::string& help, std::function<void(T)> take);
  absl::Status Unknown(const std::string& argument) const;

  const std::string usage_;
  const std::string about_;
  std::vector<Flag> flags_;
  bool help_asked_ = false;
};

// For a program that takes flags only: fills the outputs of `line` from `argv`.
// Returns the exit code if the program is to end now: 0 after --help, --version
// and what completion and manual ask (services/base/completion.h, manual.h), which
// it prints; 2 after a mistake, which it reports to stderr.
std::optional<int> ParseFlags(const std::string& program, int argc,
                              const char* const* argv, CommandLine* line);

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_COMMAND_LINE_H_
