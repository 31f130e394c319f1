#ifndef FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_PROGRAM_H_
#define FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_PROGRAM_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/base/subprocess.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {

// flotilla-coordinator as a process of its own.
class CoordinatorProgram {
 public:
  // Adds the program and --address_file to `flags`, and with `open` what lets
  // everybody on this host change its run.
  explicit CoordinatorProgram(std::vector<std::string> flags,
                              bool open = true) {
    const char* bin = std::getenv("FLOTILLA_BIN");
    CHECK(bin != nullptr) << "run this with ctest: FLOTILLA_BIN is not set";
    SubprocessOptions options;
    options.argv = {std::string(bin) + "/flotilla-coordinator",
                    "--address_file=" + (folder_ / "address")};
    if (open) options.argv.push_back("--insecure");
    for (std::string& flag : flags) options.argv.push_back(std::move(flag));
    options.log_path = folder_ / "log";
    auto process = Subprocess::Start(options);
    CHECK(process.ok()) << process.status();
    process_ = *std::move(process);
  }

  // Where it listens; "" if it ended instead.
  std::string AwaitAddress() {
    std::string address;
    Eventually([&] {
      address = ReadFile(folder_ / "address");
      return !address.empty() || process_->Poll().has_value();
    });
    return address.substr(0, address.find('\n'));
  }

  // Its exit code; -1 if it does not end within 20 s.
  int AwaitExit() {
    const auto exit = process_->Wait(absl::Seconds(20));
    return exit.has_value() ? exit->code : -1;
  }

  std::string Log() { return ReadFile(folder_ / "log"); }
  Subprocess* process() { return process_.get(); }

 private:
  TempDir folder_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_SERVICES_COORDINATOR_COORDINATOR_PROGRAM_H_
