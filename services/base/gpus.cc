#include "services/base/gpus.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace flotilla {
namespace {

// The few functions of nvml.h that we need; its ABI is stable.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
constexpr int kNvmlSuccess = 0;

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (loaded()) error_ = Call("nvmlInit_v2");
  }
  ~Nvml() {
    if (!loaded()) return;
    if (error_ == kNvmlSuccess) Call("nvmlShutdown");
    dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool loaded() const { return library_ != nullptr; }
  int error() const { return error_; }  // of its start; of no use without one

  // Calls `name`; NVML's error code, or -1 if it is not in the library.
  template <typename... Args>
  int Call(const char* name, Args... args) const {
    const auto function =
        reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    return function == nullptr ? -1 : function(args...);
  }

 private:
  void* const library_;
  int error_ = -1;
};

Gpu Describe(const Nvml& nvml, NvmlDevice device) {
  Gpu gpu;
  char text[96] = "";
  if (nvml.Call("nvmlDeviceGetName", device, text,
                static_cast<unsigned>(sizeof(text))) == kNvmlSuccess) {
    gpu.name = text;
  }
  if (nvml.Call("nvmlDeviceGetUUID", device, text,
                static_cast<unsigned>(sizeof(text))) == kNvmlSuccess) {
    gpu.uuid = text;
  }
  NvmlMemory memory = {};
  if (nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory) == kNvmlSuccess) {
    gpu.memory_bytes = memory.total;
  }
  return gpu;
}

}  // namespace

GpuSurvey SurveyGpus() {
  GpuSurvey survey;
  const Nvml nvml;
  if (!nvml.loaded()) {
    survey.problem = "NVIDIA's driver is not installed (no libnvidia-ml.so.1)";
    return survey;
  }
  if (nvml.error() != kNvmlSuccess) {
    survey.problem = absl::StrCat(
        "NVIDIA's driver does not answer (nvmlInit: error ", nvml.error(), ")");
    return survey;
  }
  char driver[96] = "";
  nvml.Call("nvmlSystemGetDriverVersion", static_cast<char*>(driver),
            static_cast<unsigned>(sizeof(driver)));
  survey.driver = driver;
  unsigned count = 0;
  nvml.Call("nvmlDeviceGetCount_v2", &count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (nvml.Call("nvmlDeviceGetHandleByIndex_v2", i, &device) ==
        kNvmlSuccess) {
      survey.gpus.push_back(Describe(nvml, device));
    }
  }
  if (survey.gpus.empty()) {
    survey.problem = "NVIDIA's driver is there, but it knows no GPU";
  } else if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    survey.gpus = VisibleGpus(survey.gpus, visible);
    if (survey.gpus.empty()) {
      survey.problem =
          absl::StrCat("CUDA_VISIBLE_DEVICES=\"", visible, "\" hides all GPUs");
    }
  }
  return survey;
}

std::optional<GpuUse> MeasureGpu(int index) {
  static const Nvml nvml;
  if (nvml.error() != kNvmlSuccess) return std::nullopt;
  static const std::vector<Gpu> gpus = SurveyGpus().gpus;
  if (index < 0 || index >= static_cast<int>(gpus.size())) return std::nullopt;
  NvmlDevice device = nullptr;
  struct {
    unsigned gpu, memory;
  } use = {};
  NvmlMemory memory = {};
  if (nvml.Call("nvmlDeviceGetHandleByUUID", gpus[index].uuid.c_str(),
                &device) != kNvmlSuccess ||
      nvml.Call("nvmlDeviceGetUtilizationRates", device, &use) !=
          kNvmlSuccess ||
      nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory) != kNvmlSuccess) {
    return std::nullopt;
  }
  return GpuUse{static_cast<double>(use.gpu), memory.used};
}

std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus,
                             const std::string& visible_devices) {
  std::vector<Gpu> visible;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(visible_devices, ','))) {
    const std::string device(absl::StripAsciiWhitespace(part));
    size_t index = 0;
    const Gpu* found = nullptr;
    if (absl::SimpleAtoi(device, &index)) {
      if (index < gpus.size()) found = &gpus[index];
    } else if (absl::StartsWith(device, "MIG-")) {
      visible.push_back({device, device, 0});  // an instance: its own device
      continue;
    } else if (!device.empty()) {
      for (const Gpu& gpu : gpus) {
        if (absl::StartsWith(gpu.uuid, device)) found = &gpu;
      }
    }
    if (found == nullptr) break;
    visible.push_back(*found);
  }
  return visible;
}

}  // namespace flotilla
