package kernel

import "testing"

func TestDeviceOfLine(t *testing.T) {
	for line, want := range map[string]string{
		"virtio3-input.0":             "virtio3-input",
		"virtio3-config":              "",
		"eth0-TxRx-3":                 "eth0-TxRx",
		"nvme0q12":                    "nvme0q",
		"mlx5_comp12@pci:0000:3b:0.0": "mlx5_comp@pci:0000:3b:0.0",
		"IR-PCI-MSI 524289-edge eth1": "eth",
		"":                            "",
	} {
		if got := deviceOfLine(line); got != want {
			t.Errorf("deviceOfLine(%q) = %q, want %q", line, got, want)
		}
	}
}
