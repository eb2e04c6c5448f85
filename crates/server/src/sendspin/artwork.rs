//! Makes the pictures that players want: from any JPEG, PNG or BMP, in exactly the size that was
//! asked.
//!
//! What comes from a source is a stranger's: bytes, pixels and memory have limits, and one picture
//! is made at a time, on the pool of threads that may block.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use aulos_control::{Control, count};
use aulos_engine::codec_guard::{CodecLibrary, CodecPanic, guard};
use aulos_proto::sendspin::{ArtworkFormat, ArtworkRendition, MAX_WHOLE_ARTWORK};
use image::codecs::jpeg::JpegEncoder;
use image::imageops::{self, FilterType};
use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits, RgbImage,
};

/// Makes every picture that is wanted, until it is dropped.
pub(super) async fn render_artwork(control: Arc<Control>) {
    loop {
        let job = control.artwork.next_job().await;
        let (original, rendition) = (job.original.clone(), job.rendition());
        let work = move || -> Result<Vec<u8>, ArtworkError> {
            guard(CodecLibrary::Image, || render(&original, rendition))?
        };
        let made = tokio::task::spawn_blocking(work).await;
        // A task that was not run: the runtime ends.
        let Ok(made) = made else { return };
        if let Err(error) = &made {
            tracing::warn!(target: "sendspin", %error, "cannot show a picture to players");
            count(&control.counters.sendspin_artwork_failed);
        }
        control.artwork.finish(&job, made.ok());
    }
}

/// Why a picture cannot be made.
#[derive(Debug)]
enum ArtworkError {
    /// The original has more bytes than [`MAX_ORIGINAL`].
    TooLong(usize),
    /// The original has more pixels than [`MAX_PIXELS`], or none.
    Size(u32, u32),
    /// The library has a fault.
    Panic(CodecPanic),
    /// The original cannot be decoded within the limits, or the picture not encoded.
    Codec(ImageError),
}

impl fmt::Display for ArtworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(f, "it has {bytes} bytes; the limit is {MAX_ORIGINAL}"),
            Self::Size(width, height) => {
                write!(f, "it has {width} x {height} pixels; the limit is {MAX_PIXELS} in all")
            }
            Self::Panic(panic) => panic.fmt(f),
            Self::Codec(error) => error.fmt(f),
        }
    }
}

impl From<CodecPanic> for ArtworkError {
    fn from(panic: CodecPanic) -> Self {
        Self::Panic(panic)
    }
}

impl From<ImageError> for ArtworkError {
    fn from(error: ImageError) -> Self {
        Self::Codec(error)
    }
}

/// The picture in this format and size: scaled until it fits, in the middle of black, nothing cut.
fn render(original: &[u8], rendition: ArtworkRendition) -> Result<Vec<u8>, ArtworkError> {
    let image = decode(original)?;
    let (width, height) = fitting_size(image.dimensions(), (rendition.width, rendition.height));
    let scaled = imageops::resize(&image, width, height, FilterType::Triangle);
    let mut canvas = RgbImage::new(rendition.width, rendition.height);
    let (left, top) = ((rendition.width - width) / 2, (rendition.height - height) / 2);
    imageops::replace(&mut canvas, &scaled, left.into(), top.into());
    encode(&canvas, rendition.format)
}

/// The pixels of a picture; what is transparent is black.
fn decode(original: &[u8]) -> Result<RgbImage, ArtworkError> {
    if original.len() > MAX_ORIGINAL {
        return Err(ArtworkError::TooLong(original.len()));
    }
    let mut reader = ImageReader::new(Cursor::new(original));
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_MEMORY);
    reader.limits(limits);
    let reader = reader.with_guessed_format().map_err(ImageError::from)?;
    let decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if !(1..=MAX_PIXELS).contains(&pixels) || decoder.total_bytes() > MAX_MEMORY {
        return Err(ArtworkError::Size(width, height));
    }
    let image = DynamicImage::from_decoder(decoder)?;
    if !image.color().has_alpha() {
        return Ok(image.into_rgb8());
    }
    let image = image.into_rgba8();
    let (width, height) = image.dimensions();
    let shown = |value: u8, alpha: u8| {
        u8::try_from(u16::from(value) * u16::from(alpha) / 255).unwrap_or(u8::MAX)
    };
    Ok(RgbImage::from_fn(width, height, |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0;
        [shown(red, alpha), shown(green, alpha), shown(blue, alpha)].into()
    }))
}

/// The largest size with these proportions in this frame.
fn fitting_size((width, height): (u32, u32), frame: (u32, u32)) -> (u32, u32) {
    let scaled = |side: u32, by: u32, of: u32| {
        let rounded = (u64::from(side) * u64::from(by) + u64::from(of) / 2) / u64::from(of);
        u32::try_from(rounded).unwrap_or(u32::MAX).max(1)
    };
    let is_wider = u64::from(width) * u64::from(frame.1) > u64::from(height) * u64::from(frame.0);
    match is_wider {
        true => (frame.0, scaled(height, frame.0, width).min(frame.1)),
        false => (scaled(width, frame.1, height).min(frame.0), frame.1),
    }
}

/// Encodes a picture; JPEG in the best quality in which it can go out in one message.
fn encode(picture: &RgbImage, format: ArtworkFormat) -> Result<Vec<u8>, ArtworkError> {
    let mut out = Vec::new();
    match format {
        ArtworkFormat::Jpeg => {
            for quality in JPEG_QUALITIES {
                out.clear();
                JpegEncoder::new_with_quality(&mut out, quality).encode_image(picture)?;
                if out.len() <= MAX_WHOLE_ARTWORK {
                    break;
                }
            }
        }
        ArtworkFormat::Png => picture.write_to(&mut Cursor::new(&mut out), ImageFormat::Png)?,
        ArtworkFormat::Bmp => picture.write_to(&mut Cursor::new(&mut out), ImageFormat::Bmp)?,
    }
    Ok(out)
}

/// Bytes of an original: what control scripts and players may hand over.
const MAX_ORIGINAL: usize = 4 << 20;

/// Pixels of an original: covers of 3,000 x 3,000 are sold.
const MAX_PIXELS: u64 = 10_000_000;

/// Memory for the pixels of an original.
const MAX_MEMORY: u64 = 64 << 20;

/// Qualities of JPEG that are tried.
const JPEG_QUALITIES: [u8; 4] = [85, 70, 50, 25];

#[cfg(test)]
mod tests {
    use super::*;

    fn rendition(format: ArtworkFormat, width: u32, height: u32) -> ArtworkRendition {
        ArtworkRendition { format, width, height }
    }

    /// Red on the left and blue on the right.
    fn two_colors(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let image = RgbImage::from_fn(width, height, |x, _| {
            if x < width / 2 { [250, 10, 10].into() } else { [10, 10, 250].into() }
        });
        let mut out = Vec::new();
        image.write_to(&mut Cursor::new(&mut out), format).unwrap();
        out
    }

    #[track_caller]
    fn assert_near(picture: &RgbImage, at: (u32, u32), color: [u8; 3]) {
        let found = picture.get_pixel(at.0, at.1).0;
        let is_near = found.iter().zip(color).all(|(one, two)| one.abs_diff(two) <= 12);
        assert!(is_near, "{found:?} at {at:?}");
    }

    #[test]
    fn a_picture_is_scaled_and_padded_and_nothing_is_cut() {
        for (original, size) in [
            (two_colors(600, 300, ImageFormat::Png), (100, 100)),
            (two_colors(40, 20, ImageFormat::Jpeg), (100, 100)),
            (two_colors(600, 300, ImageFormat::Bmp), (100, 100)),
        ] {
            for format in [ArtworkFormat::Jpeg, ArtworkFormat::Png, ArtworkFormat::Bmp] {
                let made = render(&original, rendition(format, size.0, size.1)).unwrap();
                let head: &[u8] = match format {
                    ArtworkFormat::Jpeg => &[0xff, 0xd8],
                    ArtworkFormat::Png => b"\x89PNG",
                    ArtworkFormat::Bmp => b"BM",
                };
                assert!(made.starts_with(head));
                let picture = image::load_from_memory(&made).unwrap().into_rgb8();
                assert_eq!(picture.dimensions(), size);
                for y in [4, 20, 80, 95] {
                    assert_near(&picture, (50, y), [0, 0, 0]);
                }
                for y in [30, 50, 70] {
                    assert_near(&picture, (4, y), [250, 10, 10]);
                    assert_near(&picture, (95, y), [10, 10, 250]);
                }
            }
        }
    }

    #[test]
    fn sizes_fit_their_frame() {
        for ((width, height), frame, fitting) in [
            ((600, 300), (100, 100), (100, 50)),
            ((300, 600), (100, 100), (50, 100)),
            ((1, 10_000), (100, 100), (1, 100)),
            ((10_000, 1), (1, 1), (1, 1)),
            ((3, 3), (1_024, 1), (1, 1)),
            ((1_001, 1_000), (1_000, 1_000), (1_000, 999)),
        ] {
            assert_eq!(fitting_size((width, height), frame), fitting);
        }
    }

    #[test]
    fn what_is_transparent_is_black() {
        let image = image::RgbaImage::from_fn(8, 8, |x, _| {
            [255, 255, 255, if x < 4 { 0 } else { 255 }].into()
        });
        let mut original = Vec::new();
        image.write_to(&mut Cursor::new(&mut original), ImageFormat::Png).unwrap();
        let made = render(&original, rendition(ArtworkFormat::Png, 8, 8)).unwrap();
        let picture = image::load_from_memory(&made).unwrap().into_rgb8();
        assert_eq!((picture.get_pixel(0, 0).0, picture.get_pixel(7, 7).0), ([0; 3], [255; 3]));
    }

    #[test]
    fn noise_as_jpeg_still_goes_out_in_one_message() {
        let mut state = 1_u32;
        let noise = RgbImage::from_fn(1_024, 1_024, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            [state.to_be_bytes()[0], state.to_be_bytes()[1], state.to_be_bytes()[2]].into()
        });
        let best = encode(&noise, ArtworkFormat::Jpeg).unwrap();
        println!("{} bytes", best.len());
        let small = imageops::resize(&noise, 512, 512, FilterType::Triangle);
        assert!(encode(&small, ArtworkFormat::Jpeg).unwrap().len() <= MAX_WHOLE_ARTWORK);
    }

    #[test]
    fn what_is_no_picture_or_too_large_is_refused() {
        let jpeg = rendition(ArtworkFormat::Jpeg, 10, 10);
        assert!(matches!(render(b"", jpeg), Err(ArtworkError::Codec(_))));
        assert!(matches!(render(b"GIF89a...", jpeg), Err(ArtworkError::Codec(_))));
        let long = vec![0; MAX_ORIGINAL + 1];
        assert!(matches!(render(&long, jpeg), Err(ArtworkError::TooLong(_))));
        let mut png = two_colors(4, 4, ImageFormat::Png);
        // The width in the header, whose check sum is wrong then.
        png[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        assert!(render(&png, jpeg).is_err());
        // A bitmap that says that it has a billion pixels.
        let mut bmp = two_colors(4, 4, ImageFormat::Bmp);
        bmp[18..22].copy_from_slice(&30_000_u32.to_le_bytes());
        bmp[22..26].copy_from_slice(&30_000_u32.to_le_bytes());
        assert!(matches!(render(&bmp, jpeg), Err(ArtworkError::Size(30_000, 30_000))));
        // Damage at every place, and every end.
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Bmp] {
            let good = two_colors(20, 20, format);
            for at in 0..good.len() {
                drop(render(&good[..at], jpeg));
                let mut bad = good.clone();
                bad[at] ^= 0x55;
                drop(render(&bad, jpeg));
            }
        }
    }
}
