#ifndef FLOTILLA_SERVICES_BASE_KEPT_FILES_H_
#define FLOTILLA_SERVICES_BASE_KEPT_FILES_H_

#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "services/base/run_folder.h"

namespace flotilla {

// A file that a configuration names and that a run keeps a copy of in its folder:
// what its learners load, wherever the folder is by then and whatever became of
// the one that was named.
struct KeptFile {
  std::string field;    // "model.torchscript"
  std::string name;     // in the run's folder: "network.pt"
  std::string made_by;  // for people: the command that makes one
  // A resumed run may take another build of it: a library, which has to fit the
  // program that loads it.
  bool may_change = false;
  // The field; "" if it is not set.
  std::string (*get)(const v1::RunConfig& config) = nullptr;
  void (*set)(const std::string& path, v1::RunConfig* config) = nullptr;

  std::string PathIn(const RunFolder& run) const {
    return run.path() + "/" + name;
  }
};

// All there are, whether a configuration names them or not.
const std::vector<KeptFile>& KeptFiles();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_KEPT_FILES_H_
