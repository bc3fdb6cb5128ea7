#!/bin/sh
# Makes a directory with Bochs's plugins in which the USB controller (xHCI) has MSI and no line, for the tests vm/bochs/usb-*: no
# device of Bochs 3.0 can send messages, and its lines are below 16, which a domain with pirqs cannot have.
#
#     ci/bochs/usb-msi.sh SOURCE PLUGINS OUT
#
# SOURCE: the unpacked source of Bochs 3.0 (Debian 13: `apt-get source bochs`), which is changed and configured as Debian's.
# PLUGINS: Debian's plugins (usr/lib/x86_64-linux-gnu/bochs/plugins in the cache's folder `bochs`). OUT: the new directory.
# Then: XENOLITH_BOCHS_PLUGINS=OUT cargo xtask test vm/bochs/usb-bits
set -e
[ $# -eq 3 ] || { echo "usage: $0 SOURCE PLUGINS OUT" >&2; exit 2; }
source=$(realpath "$1")
plugins=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Configured without the displays, whose libraries need not be there; nothing is linked against this stand-in.
echo 'typedef void *lt_dlhandle;' >"$work/ltdl.h"
echo 'int lt_dlinit(void) { return 0; }' | gcc -shared -fPIC -x c - -o "$work/libltdl.so"
cd "$source"
CPPFLAGS=-I$work LDFLAGS=-L$work ./configure --with-rfb --with-term --without-x --without-x11 --disable-docbook \
	--enable-3dnow --enable-a20-pin --enable-all-optimizations --enable-amx --enable-avx --enable-busmouse --enable-cdrom \
	--enable-cet --enable-clgd54xx --enable-cpu-level=6 --enable-debugger --disable-debugger-gui --enable-e1000 \
	--enable-es1370 --enable-evex --enable-fpu --enable-idle-hack --enable-instrumentation --enable-pci --enable-pcidev \
	--enable-plugins --enable-repeat-speedups --enable-memtype --enable-ne2000 --enable-pnic --enable-protection-keys \
	--enable-raw-serial --enable-sb16 --enable-smp --enable-svm --enable-uintr --enable-usb --enable-usb-ehci \
	--enable-usb-ohci --enable-usb-xhci --enable-vmx=2 --enable-voodoo --enable-x86-64 --enable-x86-debugger \
	>"$work/configure.log" || { tail "$work/configure.log"; exit 1; }
# Debian's build has these with its displays; classes that plugins share depend on the second.
sed -i 's/define BX_DEBUGGER_GUI 0/define BX_DEBUGGER_GUI 1/; s/define BX_USB_DEBUGGER 0/define BX_USB_DEBUGGER 1/' config.h

file=iodev/usb/usb_xhci.cc
grep -q deliver_message $file || {
	# The capability, at 0x70: one message, 64-bit address. Of its control only the enable bit is written.
	sed -i 's|^ *{ 0x51, 0x00 },.*|{ 0x51, 0x70 }, { 0x70, 0x05 }, { 0x71, 0x00 }, { 0x72, 0x80 }, { 0x73, 0x00 }, { 0x3d, 0x00 },|' $file
	sed -i '/::pci_write_handler(/,/^}/s|^ *case 0x54:$|case 0x70: case 0x71: case 0x73: break;\
case 0x72: BX_XHCI_THIS pci_conf[address+i] = 0x80 \| (value8 \& 1); break;\
&|' $file
	sed -i '/::update_irq(/,/^}/s|^ *DEV_pci_set_irq.*|deliver_message(\&BX_XHCI_THIS pci_conf[0x70], level);|' $file
	sed -i 's|^ *DEV_pci_set_irq.*|;|' $file
	cat >"$work/message.h" <<-'END'
		bool apic_bus_deliver_interrupt(Bit8u, Bit32u, Bit8u, bool, bool, bool);
		static void deliver_message(const Bit8u *c, bool level)
		{
		  if (!level || !(c[2] & 1)) return;
		  Bit8u destination = c[6] << 4 | c[5] >> 4;
		  apic_bus_deliver_interrupt(c[12], destination, c[13] & 7, c[4] >> 2 & 1, true, false);
		}
	END
	sed -i "/#include \"pci.h\"/r $work/message.h" $file
}
g++ -O2 -fPIC -shared -w -I. -Iinstrument/stubs -I"$work" -Icpu -Iiodev -Iiodev/usb -DBX_PLUGIN -DHAVE_CONFIG_H $file \
	-o "$work/plugin.so"
cp -a "$plugins/." "$out"
cp --remove-destination "$work/plugin.so" "$out/libbx_usb_xhci.so.0.0.0"
echo "$out: XENOLITH_BOCHS_PLUGINS names it"
