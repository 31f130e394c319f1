#include "services/base/kept_files.h"

namespace flotilla {

const std::vector<KeptFile>& KeptFiles() {
  static const auto& files = *new std::vector<KeptFile>{
      {.field = "model.torchscript",
       .name = "network.pt",
       .made_by = "torch.jit.script(module).save(...)",
       .get = [](const v1::RunConfig& c) { return c.model().torchscript(); },
       .set =
           [](const std::string& path, v1::RunConfig* c) {
             c->mutable_model()->set_torchscript(path);
           }},
      {.field = "model.plugin",
       .name = "network.so",
       .made_by = "`flotilla new network DIR`, then cmake in DIR",
       .may_change = true,
       .get = [](const v1::RunConfig& c) { return c.model().plugin(); },
       .set = [](const std::string& path,
                 v1::RunConfig* c) { c->mutable_model()->set_plugin(path); }},
      {.field = "custom.library",
       .name = "algorithm.so",
       .made_by = "`flotilla new algorithm DIR`, then cmake in DIR",
       .may_change = true,
       .get = [](const v1::RunConfig& c) { return c.custom().library(); },
       .set = [](const std::string& path,
                 v1::RunConfig* c) { c->mutable_custom()->set_library(path); }},
  };
  return files;
}

}  // namespace flotilla
