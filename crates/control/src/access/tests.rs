//! Logins, roles, and the limits of failed logins.

use std::net::Ipv4Addr;

use super::*;

fn rules() -> AccessPolicy {
    let user = |name: &str, role, password: Option<&str>, token: Option<&str>| User {
        name: name.to_owned(),
        role,
        has_log: role == Role::Listen,
        password: password.map(SecretDigest::new),
        token: token.map(SecretDigest::new),
    };
    AccessPolicy {
        users: vec![
            user("kitchen", Role::Listen, Some("pass one"), None),
            user("anna", Role::Admin, Some("pass:two"), Some("token-two")),
            user("board", Role::Control, None, Some("token-three")),
        ],
        anonymous: Role::None,
        certificate_role: Role::Listen,
        failed_logins_per_minute: 3,
    }
}

/// The role of a login.
fn role_of(
    access: &AccessControl,
    from: IpAddr,
    credentials: &Credentials,
    now: Instant,
) -> Result<Role, LoginError> {
    access.login(from, credentials, now).map(|login| login.role)
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const NOW: Instant = Instant::from_nanos(1_000_000_000);

#[test]
fn only_a_login_grants_the_role_of_a_user() {
    let access = AccessControl::new(rules());
    let role = |scheme: &str, param: &str| {
        role_of(&access, HERE, &Credentials::parse(scheme, param), NOW).map_err(|_| ())
    };
    assert_eq!(role("Plain", "kitchen:pass one"), Ok(Role::Listen));
    assert_eq!(role("plain", "anna:pass:two"), Ok(Role::Admin));
    assert_eq!(role("Basic", "YW5uYTpwYXNzOnR3bw=="), Ok(Role::Admin));
    assert_eq!(role("Bearer", "token-two"), Ok(Role::Admin));
    assert_eq!(role("BEARER", " token-three"), Ok(Role::Control));
    for (scheme, param) in [
        ("Plain", "kitchen:pass:two"),
        ("Plain", "kitchen:"),
        ("Plain", "kitchen"),
        ("Plain", ":pass one"),
        ("Plain", "Kitchen:pass one"),
        ("Plain", "board:token-three"),
        ("Plain", "board:"),
        ("Basic", "anna:pass:two"),
        ("Basic", "YW5uYTpwYXNzOnR3bw"),
        ("Bearer", "pass one"),
        ("Bearer", ""),
        ("Digest", "token-two"),
        ("", ""),
    ] {
        assert_eq!(role(scheme, param), Err(()), "{scheme} {param}");
    }
}

#[test]
fn headers_are_read_as_browsers_send_them() {
    let password = |user: &str, password: &str| Credentials::Password(user.into(), password.into());
    assert_eq!(
        Credentials::from_header("Basic YW5uYTpwYXNzOnR3bw=="),
        password("anna", "pass:two")
    );
    // The same password in UTF-8 and in Latin-1.
    for encoded in ["Basic YW5uYTpww6Rzc2U=", "Basic YW5uYTpw5HNzZQ=="] {
        let wanted = Credentials::Password("anna".into(), "p\u{e4}sse".into());
        assert_eq!(Credentials::from_header(encoded), wanted);
    }
    assert_eq!(Credentials::from_header("bearer abc"), Credentials::Token("abc".into()));
    for odd in ["", "Basic", "Plain a:b", "abc", "Basic \u{fffd}"] {
        assert_eq!(Credentials::from_header(odd), Credentials::Unreadable, "{odd}");
    }
}

#[test]
fn without_configured_users_every_login_is_accepted() {
    let access = AccessControl::new(AccessPolicy::default());
    let anything = Credentials::parse("Plain", "x:y");
    assert!((0..100).all(|_| role_of(&access, THERE, &anything, NOW) == Ok(Role::Admin)));
}

#[test]
fn who_guesses_too_often_is_not_even_right_any_more_for_a_while() {
    let access = AccessControl::new(rules());
    let (right, wrong) = (Credentials::parse("Plain", "kitchen:pass one"), Credentials::Unreadable);
    for _ in 0..3 {
        assert_eq!(role_of(&access, THERE, &wrong, NOW), Err(LoginError::WrongCredentials));
    }
    assert_eq!(role_of(&access, THERE, &right, NOW), Err(LoginError::RateLimited));
    // Other addresses are not limited by it, and loopback never is.
    assert_eq!(
        role_of(&access, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), &right, NOW),
        Ok(Role::Listen)
    );
    assert!(
        (0..100).all(|_| role_of(&access, HERE, &wrong, NOW) == Err(LoginError::WrongCredentials))
    );
    let later = NOW + Span::from_secs(21);
    assert_eq!(role_of(&access, THERE, &right, later), Ok(Role::Listen));
    // A correct login costs nothing, and one attempt has been refilled.
    assert_eq!(role_of(&access, THERE, &wrong, later), Err(LoginError::WrongCredentials));
    assert_eq!(role_of(&access, THERE, &right, later), Err(LoginError::RateLimited));
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?} {:?}", rules(), Credentials::parse("Plain", "a:hidden"));
    assert!(text.contains("kitchen"), "{text}");
    for secret in ["pass one", "token-two", "hidden"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn calls_before_a_login_are_limited_per_address_except_loopback() {
    let access = AccessControl::new(AccessPolicy::default());
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let let_in = (0..2_000).filter(|_| access.may_call(one, at(0))).count();
    assert_eq!(let_in, CALLS_BEFORE_LOGIN as usize);
    assert!(access.may_call(other, at(0)));
    assert!(access.may_call(one, at(20)) && !access.may_call(one, at(20)));
    assert!((0..2_000).all(|_| access.may_call(IpAddr::from([127, 0, 0, 1]), at(0))));
}

#[test]
fn the_permission_for_logs_is_beside_the_roles() {
    let access = AccessControl::new(rules());
    let login = |param| access.login(HERE, &Credentials::parse("Plain", param), NOW).unwrap();
    let kitchen = login("kitchen:pass one");
    assert!(kitchen.has_log && kitchen.role == Role::Listen);
    assert_eq!(kitchen.user.as_deref(), Some("kitchen"));
    assert!(!login("anna:pass:two").has_log);
    // Without users every client may do everything, unless the configuration limits it.
    assert!(AccessPolicy::default().anonymous_login().has_log);
    for anonymous in [Role::None, Role::Listen, Role::Control] {
        assert!(!AccessPolicy { anonymous, ..AccessPolicy::default() }.anonymous_login().has_log);
    }
    assert!(!AccessPolicy { anonymous: Role::Admin, ..rules() }.anonymous_login().has_log);
    // A login adds to what the connection has.
    let both = login("anna:pass:two").or(kitchen);
    assert!(both.has_log && both.role == Role::Admin && both.user.as_deref() == Some("anna"));
}
