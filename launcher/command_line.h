#ifndef FLOTILLA_LAUNCHER_COMMAND_LINE_H_
#define FLOTILLA_LAUNCHER_COMMAND_LINE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The flags of one subcommand, as torchrun and GNU tools take them: `--flag
// value` and `--flag=value`, hyphens and underscores alike, flags and arguments
// in any order, everything after `--` an argument.
//
// Outputs are borrowed and must outlive Parse. Not thread-safe.
class CommandLine {
 public:
  // `usage` is the line after "usage:", `about` what the subcommand does.
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

  // May be given many times.
  void List(const std::string& name, const std::string& value_name,
            const std::string& help, std::vector<std::string>* out);

  // `--name`, which means `bare`, or `--name value`; the next argument is the
  // value only if `is_value` says so.
  void OptionalText(const std::string& name, const std::string& value_name,
                    const std::string& help, const std::string& bare,
                    std::function<bool(const std::string&)> is_value,
                    std::optional<std::string>* out);

  // The five flags that name TLS files, the token, and plaintext.
  void Credentials(RpcCredentials* out);

  // Another spelling of `name` that help does not list.
  void Alias(const std::string& alias, const std::string& name);

  // Fills the outputs and returns the arguments that are no flags. When --help
  // or -h is among them, nothing else counts: see help_asked().
  // Errors: kInvalidArgument, naming the flag and the nearest known one.
  absl::StatusOr<std::vector<std::string>> Parse(
      const std::vector<std::string>& arguments);

  bool help_asked() const { return help_asked_; }
  std::string Help() const;

 private:
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

  Flag* Find(const std::string& name);
  absl::Status Unknown(const std::string& argument) const;

  const std::string usage_;
  const std::string about_;
  std::vector<Flag> flags_;
  bool help_asked_ = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_COMMAND_LINE_H_
