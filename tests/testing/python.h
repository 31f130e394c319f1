#ifndef FLOTILLA_TESTS_TESTING_PYTHON_H_
#define FLOTILLA_TESTS_TESTING_PYTHON_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace flotilla {

// The interpreter with the packages that tests read our files with:
// FLOTILLA_TEST_PYTHON, else testvenv's in FLOTILLA_DEPS, which ctest sets, or
// in the checkout's .deps; "" if there is neither.
inline std::string TestPython() {
  if (const char* python = std::getenv("FLOTILLA_TEST_PYTHON")) return python;
  const char* named = std::getenv("FLOTILLA_DEPS");
  const std::filesystem::path deps = named != nullptr
                                         ? std::filesystem::path(named)
                                         : std::filesystem::absolute(__FILE__)
                                                   .parent_path()
                                                   .parent_path()
                                                   .parent_path() /
                                               ".deps";
  const std::string python = (deps / "testvenv/bin/python").string();
  return std::filesystem::exists(python) ? python : "";
}

// Whether `module` can be imported there.
inline bool TestPythonHas(const std::string& module) {
  const std::string python = TestPython();
  if (python.empty()) return false;
  return std::system((python + " -c 'import " + module + "' >/dev/null 2>&1")
                         .c_str()) == 0;
}

struct PythonResult {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

// Runs the program text `script`, which reads its arguments from sys.argv[1:].
inline PythonResult RunPython(const std::string& script,
                              const std::string& arguments) {
  const std::string file =
      std::filesystem::temp_directory_path() /
      ("flotilla_test_" + std::to_string(::getpid()) + ".py");
  if (FILE* out = std::fopen(file.c_str(), "w")) {
    std::fputs(script.c_str(), out);
    std::fclose(out);
  }
  PythonResult result;
  const std::string command =
      "timeout 120 " + TestPython() + " " + file + " " + arguments + " 2>&1";
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      result.output.append(buffer, n);
    }
    const int status = ::pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::filesystem::remove(file);
  return result;
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_PYTHON_H_
