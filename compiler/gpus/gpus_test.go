package gpus

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

const no = nvml.ERROR_NOT_SUPPORTED

// gpu is a device of the test: number 0 tells everything and has links to 1 and to a switch, 1 tells as little as may be.
func gpu(number int) nvml.Device {
	tells := nvml.SUCCESS
	if number > 0 {
		tells = no
	}
	pci := func(bus int) nvml.PciInfo { return nvml.PciInfo{Bus: uint32(bus)} }
	return &mock.Device{
		GetNameFunc:                   func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetUUIDFunc:                   func() (string, nvml.Return) { return "GPU-0", tells },
		GetPciInfoFunc:                func() (nvml.PciInfo, nvml.Return) { return pci(16 + number), nvml.SUCCESS },
		GetCudaComputeCapabilityFunc:  func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS },
		GetMemoryInfoFunc:             func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 141 << 30, Used: 3 << 30}, tells },
		GetUtilizationRatesFunc:       func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 97}, tells },
		GetTemperatureFunc:            func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, tells },
		GetTotalEccErrorsFunc:         func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, tells },
		GetCurrPcieLinkGenerationFunc: func() (int, nvml.Return) { return 5, tells },
		GetCurrPcieLinkWidthFunc:      func() (int, nvml.Return) { return 16, tells },
		GetNvLinkStateFunc: func(link int) (nvml.EnableState, nvml.Return) {
			if link > 4 {
				return nvml.FEATURE_DISABLED, tells
			}
			return nvml.FEATURE_ENABLED, tells
		},
		GetNvLinkRemoteDeviceTypeFunc: func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			if link < 2 {
				return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
			}
			return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
		},
		GetNvLinkRemotePciInfoFunc: func(link int) (nvml.PciInfo, nvml.Return) {
			if link == 4 {
				return pci(99), nvml.SUCCESS
			}
			return pci(17), nvml.SUCCESS
		},
	}
}

func library(init nvml.Return, devices int) nvml.Interface {
	return &mock.Interface{
		InitFunc:                       func() nvml.Return { return init },
		ShutdownFunc:                   func() nvml.Return { return nvml.SUCCESS },
		ErrorStringFunc:                func(nvml.Return) string { return "it is out of order" },
		DeviceGetCountFunc:             func() (int, nvml.Return) { return devices, nvml.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "580.65.06", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 13000, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:     func(i int) (nvml.Device, nvml.Return) { return gpu(i), nvml.SUCCESS },
	}
}

func TestRead(t *testing.T) {
	got, err := Read(library(nvml.SUCCESS, 2))
	if err != nil {
		t.Fatal(err)
	}
	want := &Report{Driver: "580.65.06", CUDA: "13.0", GPUs: []GPU{
		{Name: "NVIDIA H200", UUID: "GPU-0", Bus: "0000:10:00.0", Arch: "sm_90", Used: 3 << 30, Total: 141 << 30, Busy: 97, Temperature: 61, Faults: 2, PCIe: PCIe{5, 16},
			Links: []Link{{-1, "switch", 2}, {1, "gpu", 2}, {-2, "other", 1}}},
		{Number: 1, Name: "NVIDIA H200", Bus: "0000:11:00.0", Arch: "sm_90", Used: -1, Total: -1, Busy: -1, Temperature: -1, Faults: -1, PCIe: PCIe{-1, -1}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestNone(t *testing.T) {
	for want, lib := range map[string]nvml.Interface{
		"no GPU: no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded (set GTC_NVML_LIB to its file if it lies elsewhere)": library(nvml.ERROR_LIBRARY_NOT_FOUND, 0),
		"no GPU: the NVIDIA driver is installed but not loaded":                                                            library(nvml.ERROR_DRIVER_NOT_LOADED, 0),
		"no GPU: the NVIDIA driver does not start: it is out of order":                                                     library(nvml.ERROR_UNKNOWN, 0),
		"no GPU: the NVIDIA driver shows none":                                                                             library(nvml.SUCCESS, 0),
	} {
		if _, err := Read(lib); !errors.Is(err, ErrNone) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
