#include "services/base/gpus.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/mutex.h"

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
  int major = 0, minor = 0;
  if (nvml.Call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor) ==
      kNvmlSuccess) {
    gpu.compute_capability = 10 * major + minor;
  }
  return gpu;
}

// A GPU of the host; a divided one as its first instance, if it has any.
Gpu DescribeAsUsed(const Nvml& nvml, NvmlDevice device) {
  Gpu gpu = Describe(nvml, device);
  unsigned divided = 0, after_a_reset = 0, most = 0;
  if (nvml.Call("nvmlDeviceGetMigMode", device, &divided, &after_a_reset) !=
          kNvmlSuccess ||
      divided != 1) {
    return gpu;
  }
  gpu.instances = 0;
  nvml.Call("nvmlDeviceGetMaxMigDeviceCount", device, &most);
  for (unsigned i = 0; i < most; ++i) {
    NvmlDevice instance = nullptr;
    if (nvml.Call("nvmlDeviceGetMigDeviceHandleByIndex", device, i,
                  &instance) != kNvmlSuccess) {
      continue;
    }
    if (gpu.instances == 0) {
      const int capability = gpu.compute_capability;
      gpu = Describe(nvml, instance);
      gpu.compute_capability = capability;
      gpu.instances = 0;
    }
    ++*gpu.instances;
  }
  return gpu;
}

// Of those that could be visible.
std::vector<Gpu> SeenByCuda(std::vector<Gpu> visible) {
  for (const Gpu& gpu : visible) {
    if (gpu.instances.value_or(0) > 0) return {gpu};
  }
  std::erase_if(visible, [](const Gpu& gpu) { return gpu.instances == 0; });
  return visible;
}

class NvmlDriver : public GpuDriver {
 public:
  std::string Problem() override {
    if (!nvml_.loaded()) {
      return "NVIDIA's driver is not installed (no libnvidia-ml.so.1)";
    }
    if (nvml_.error() == kNvmlSuccess) return "";
    return absl::StrCat("NVIDIA's driver does not answer (nvmlInit: error ",
                        nvml_.error(), ")");
  }

  std::string Version() override {
    char version[96] = "";
    nvml_.Call("nvmlSystemGetDriverVersion", static_cast<char*>(version),
               static_cast<unsigned>(sizeof(version)));
    return version;
  }

  std::vector<Gpu> Gpus() override {
    std::vector<Gpu> gpus;
    unsigned count = 0;
    nvml_.Call("nvmlDeviceGetCount_v2", &count);
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      if (nvml_.Call("nvmlDeviceGetHandleByIndex_v2", i, &device) ==
          kNvmlSuccess) {
        gpus.push_back(DescribeAsUsed(nvml_, device));
      }
    }
    return gpus;
  }

  GpuUse Use(const std::string& uuid) override {
    GpuUse use;
    NvmlDevice device = nullptr;
    if (nvml_.Call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device) !=
        kNvmlSuccess) {
      return use;
    }
    struct {
      unsigned gpu, memory;
    } rates = {};
    if (nvml_.Call("nvmlDeviceGetUtilizationRates", device, &rates) ==
        kNvmlSuccess) {
      use.percent = rates.gpu;
    }
    NvmlMemory memory = {};
    if (nvml_.Call("nvmlDeviceGetMemoryInfo", device, &memory) ==
        kNvmlSuccess) {
      use.memory_bytes = memory.used;
    }
    return use;
  }

 private:
  const Nvml nvml_;
};

std::optional<std::string> VisibleDevices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? std::nullopt
                            : std::optional<std::string>(visible);
}

}  // namespace

std::unique_ptr<GpuDriver> OpenGpuDriver() {
  return std::make_unique<NvmlDriver>();
}

GpuSurvey SurveyGpus(GpuDriver* driver,
                     const std::optional<std::string>& visible_devices) {
  GpuSurvey survey;
  survey.problem = driver->Problem();
  if (!survey.problem.empty()) return survey;
  survey.driver = driver->Version();
  survey.gpus = driver->Gpus();
  if (!visible_devices) survey.gpus = SeenByCuda(std::move(survey.gpus));
  if (survey.gpus.empty()) {
    survey.problem = "NVIDIA's driver is there, but it knows no GPU";
  } else if (visible_devices) {
    survey.gpus = VisibleGpus(survey.gpus, *visible_devices);
    if (survey.gpus.empty()) {
      survey.problem = absl::StrCat("CUDA_VISIBLE_DEVICES=\"", *visible_devices,
                                    "\" hides all GPUs");
    }
  }
  return survey;
}

GpuSurvey Usable(GpuSurvey survey, bool built_for_gpus) {
  if (built_for_gpus || survey.gpus.empty()) return survey;
  const size_t count = survey.gpus.size();
  survey.problem = absl::StrCat(
      "this Flotilla was built without CUDA, so that ", count,
      count == 1 ? " GPU of this host is" : " GPUs of this host are",
      " not used");
  survey.remedy =
      "FLOTILLA_CUDA=1 make build, or the wheel of FLOTILLA_CUDA=1 make wheel";
  survey.gpus.clear();
  return survey;
}

GpuSurvey SurveyGpus() {
  return Usable(SurveyGpus(OpenGpuDriver().get(), VisibleDevices()),
                FLOTILLA_WITH_CUDA != 0);
}

GpuUse MeasureGpu(GpuDriver* driver, const std::vector<Gpu>& gpus, int index) {
  if (index < 0 || index >= static_cast<int>(gpus.size())) return {};
  return driver->Use(gpus[index].uuid);
}

GpuUse MeasureGpu(int index) {
  static Mutex mu;
  MutexLock lock(&mu);
  static GpuDriver* const driver = OpenGpuDriver().release();
  static const auto& gpus =
      *new std::vector<Gpu>(SurveyGpus(driver, VisibleDevices()).gpus);
  return MeasureGpu(driver, gpus, index);
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
    } else if (!device.empty()) {
      for (const Gpu& gpu : gpus) {
        if (absl::StartsWith(gpu.uuid, device)) found = &gpu;
      }
      if (found == nullptr && absl::StartsWith(device, "MIG-")) {
        visible.push_back({.name = device, .uuid = device, .instances = 1});
        continue;
      }
    }
    if (found == nullptr) break;
    visible.push_back(*found);
  }
  return SeenByCuda(std::move(visible));
}

}  // namespace flotilla
