//! A session is saved and opened again, by lilv, the library of most hosts of LV2.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_lv2::table::{ControlPort, PLUGINS};

use crate::judges::install;

/// A function of the library with its type.
macro_rules! lilv {
    ($library:expr, $name:literal, fn($($argument:ty),*) -> $result:ty) => {{
        let symbol = libc::dlsym($library, $name.as_ptr());
        assert!(!symbol.is_null(), "{:?}", $name);
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(symbol)
    }};
}

type Pointer = *mut c_void;
type GetValue = unsafe extern "C" fn(*const c_char, Pointer, *mut u32, *mut u32) -> *const c_void;
type SetValue = unsafe extern "C" fn(*const c_char, Pointer, *const c_void, u32, u32);

/// `LV2_URID_Map` and `LV2_URID_Unmap`.
#[repr(C)]
struct Mapping<F> {
    handle: Pointer,
    function: F,
}

thread_local! {
    static URIS: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn map(_: Pointer, uri: *const c_char) -> u32 {
    let uri = unsafe { CStr::from_ptr(uri) };
    let place = URIS.with_borrow_mut(|uris| {
        let known = uris.iter().position(|known| known.as_c_str() == uri);
        known.unwrap_or_else(|| {
            uris.push(uri.to_owned());
            uris.len() - 1
        })
    });
    u32::try_from(place + 1).unwrap()
}

unsafe extern "C" fn unmap(_: Pointer, number: u32) -> *const c_char {
    // The text of a `CString` does not move with it.
    URIS.with_borrow(|uris| uris[number as usize - 1].as_ptr())
}

/// The ports of a host: symbol and value.
type Ports = Vec<(&'static str, f32)>;

unsafe extern "C" fn get_value(
    symbol: *const c_char,
    ports: Pointer,
    size: *mut u32,
    kind: *mut u32,
) -> *const c_void {
    let (symbol, ports) = unsafe { (CStr::from_ptr(symbol), &*ports.cast::<Ports>()) };
    let float = unsafe { map(ptr::null_mut(), c"http://lv2plug.in/ns/ext/atom#Float".as_ptr()) };
    unsafe { (*size, *kind) = (4, float) };
    let port = ports.iter().find(|(name, _)| Ok(*name) == symbol.to_str()).unwrap();
    ptr::from_ref(&port.1).cast()
}

unsafe extern "C" fn set_value(
    symbol: *const c_char,
    ports: Pointer,
    value: *const c_void,
    size: u32,
    _: u32,
) {
    assert_eq!(size, 4);
    let (symbol, ports) = unsafe { (CStr::from_ptr(symbol), &mut *ports.cast::<Ports>()) };
    let port = ports.iter_mut().find(|(name, _)| Ok(*name) == symbol.to_str()).unwrap();
    port.1 = unsafe { *value.cast() };
}

/// lilv with what it needs of a host.
struct Lilv {
    library: Pointer,
    world: Pointer,
    map: Mapping<unsafe extern "C" fn(Pointer, *const c_char) -> u32>,
    unmap: Mapping<unsafe extern "C" fn(Pointer, u32) -> *const c_char>,
}

impl Lilv {
    /// `None` without the library.
    fn new() -> Option<Self> {
        let library = unsafe { libc::dlopen(c"liblilv-0.so.0".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let world = unsafe { lilv!(library, c"lilv_world_new", fn() -> Pointer)() };
        let handle = ptr::null_mut();
        let (map, unmap) =
            (Mapping { handle, function: map as _ }, Mapping { handle, function: unmap as _ });
        Some(Self { library, world, map, unmap })
    }

    fn load(&self, bundle: &CStr) {
        unsafe {
            #[rustfmt::skip]
            let file = lilv!(self.library, c"lilv_new_file_uri",
                fn(Pointer, *const c_char, *const c_char) -> Pointer);
            let folder = file(self.world, ptr::null(), bundle.as_ptr());
            let load = lilv!(self.library, c"lilv_world_load_bundle", fn(Pointer, Pointer) -> ());
            load(self.world, folder);
        }
    }

    /// The plug-in of a URI, and an instance of it.
    fn instantiate(&self, uri: &CStr) -> (Pointer, Pointer) {
        let library = self.library;
        unsafe {
            let all = lilv!(library, c"lilv_world_get_all_plugins", fn(Pointer) -> Pointer);
            let node = lilv!(library, c"lilv_new_uri", fn(Pointer, *const c_char) -> Pointer);
            let find = lilv!(library, c"lilv_plugins_get_by_uri", fn(Pointer, Pointer) -> Pointer);
            let plugin = find(all(self.world), node(self.world, uri.as_ptr()));
            let make =
                lilv!(library, c"lilv_plugin_instantiate", fn(Pointer, f64, Pointer) -> Pointer);
            let instance = make(plugin, 48_000.0, ptr::null_mut());
            assert!(!instance.is_null(), "{uri:?}");
            (plugin, instance)
        }
    }

    /// The text in which a host saves the values of these ports.
    fn save(&self, plugin: Pointer, instance: Pointer, ports: &Ports) -> *mut c_char {
        type Text = *const c_char;
        let (map, unmap) = (pointer(&self.map), pointer(&self.unmap));
        let none = ptr::null();
        unsafe {
            #[rustfmt::skip]
            let save = lilv!(self.library, c"lilv_state_new_from_instance",
                fn(Pointer, Pointer, Pointer, Text, Text, Text, Text, GetValue, Pointer, u32,
                   Pointer) -> Pointer);
            let ports = pointer(ports);
            let state = save(
                plugin,
                instance,
                map,
                none,
                none,
                none,
                none,
                get_value,
                ports,
                0,
                ptr::null_mut(),
            );
            #[rustfmt::skip]
            let print = lilv!(self.library, c"lilv_state_to_string",
                fn(Pointer, Pointer, Pointer, Pointer, Text, Text) -> *mut c_char);
            let text = print(self.world, map, unmap, state, c"urn:saved".as_ptr(), none);
            assert!(!text.is_null());
            lilv!(self.library, c"lilv_state_free", fn(Pointer) -> ())(state);
            text
        }
    }

    /// Reads such a text into ports, and frees it.
    fn restore(&self, text: *mut c_char, instance: Pointer, ports: &mut Ports) {
        unsafe {
            #[rustfmt::skip]
            let parse = lilv!(self.library, c"lilv_state_new_from_string",
                fn(Pointer, Pointer, *const c_char) -> Pointer);
            let state = parse(self.world, pointer(&self.map), text);
            #[rustfmt::skip]
            let restore = lilv!(self.library, c"lilv_state_restore",
                fn(Pointer, Pointer, SetValue, Pointer, u32, Pointer) -> ());
            let ports = ptr::from_mut(ports).cast();
            restore(state, instance, set_value, ports, 0, ptr::null_mut());
            lilv!(self.library, c"lilv_state_free", fn(Pointer) -> ())(state);
            libc::free(text.cast());
        }
    }
}

impl Drop for Lilv {
    fn drop(&mut self) {
        unsafe { lilv!(self.library, c"lilv_world_free", fn(Pointer) -> ())(self.world) };
    }
}

fn pointer<T>(value: &T) -> Pointer {
    ptr::from_ref(value).cast::<c_void>().cast_mut()
}

#[test]
fn lilv_saves_and_restores_every_control() {
    let Some(lilv) = Lilv::new() else { return skip("liblilv") };
    let scratch = ScratchDir::new("lv2-state").unwrap();
    let bundle = CString::new(format!("{}/", install(&scratch).display())).unwrap();
    lilv.load(&bundle);
    for info in &PLUGINS {
        let (plugin, instance) = lilv.instantiate(info.uri);
        let value = |port: &ControlPort| (port.symbol, (port.min + port.max) / 3.0);
        let set: Ports = info.inputs().iter().map(value).collect();
        let text = lilv.save(plugin, instance, &set);
        let mut restored: Ports = set.iter().map(|(symbol, _)| (*symbol, f32::NAN)).collect();
        lilv.restore(text, instance, &mut restored);
        // The text has six digits.
        for ((symbol, value), (_, again)) in set.iter().zip(&restored) {
            assert!((value - again).abs() < 1e-4 * value.abs().max(1.0), "{symbol}: {again}");
        }
        unsafe { lilv!(lilv.library, c"lilv_instance_free", fn(Pointer) -> ())(instance) };
    }
}
